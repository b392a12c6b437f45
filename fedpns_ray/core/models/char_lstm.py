"""The character model of McMahan et al. (2017), for Shakespeare."""

from __future__ import annotations

from torch import Tensor, nn


class CharLSTM(nn.Module):
    """The next character of a text: an embedding of 8, two LSTM layers of 256 units, a linear layer.

    `classes` is the number of characters; inputs are whole numbers below it, one row per text.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.out = nn.Linear(256, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(x))
        return self.out(states[:, -1])
