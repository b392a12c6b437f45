"""The convolutional networks of Section V."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def max_pool(x: Tensor) -> Tensor:
    """The largest of 2 x 2 neighbours, for even sizes.

    Without gradients, on a CPU, as two maxima of halves: the same numbers, and several times as fast as torch's own,
    which also notes where each of them was.
    """
    if torch.is_grad_enabled() or not x.is_cpu:
        return F.max_pool2d(x, 2)
    rows = torch.maximum(x[..., ::2, :], x[..., 1::2, :])
    return torch.maximum(rows[..., ::2], rows[..., 1::2])


class CNNM(nn.Module):
    """CNN-M, for 28 x 28 grey images: 21,840 parameters with 10 classes.

    Dropout also on the hidden units, as in the released code.
    """

    channels_last = True
    """Inputs come in the memory layout that is fastest for convolutions; `flatten` accepts it, `view` does not."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.dropout2d = nn.Dropout2d(0.5)
        self.dropout = nn.Dropout(0.5)
        self.hidden = nn.Linear(320, 50)
        self.out = nn.Linear(50, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(max_pool(self.conv1(x)))
        x = F.relu(max_pool(self.dropout2d(self.conv2(x))))
        x = self.dropout(F.relu(self.hidden(x.flatten(1))))
        return self.out(x)


class CNNC(nn.Module):
    """CNN-C, for 32 x 32 colour images: 62,006 parameters with 10 classes."""

    channels_last = True

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, kernel_size=5)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.hidden1 = nn.Linear(400, 120)
        self.hidden2 = nn.Linear(120, 84)
        self.out = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(max_pool(self.conv1(x)))  # as relu before pooling, to the bit, on a quarter of the numbers
        x = F.relu(max_pool(self.conv2(x)))
        return self.out(F.relu(self.hidden2(F.relu(self.hidden1(x.flatten(1))))))
