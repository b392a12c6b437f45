"""The convolutional networks of Section V."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class CNNM(nn.Module):
    """CNN-M, for 28 x 28 grey images: 21,840 parameters. Dropout also on the hidden units, as in the released code."""

    channels_last = True
    """Inputs come in the memory layout that is fastest for convolutions; `flatten` accepts it, `view` does not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.dropout2d = nn.Dropout2d(0.5)
        self.dropout = nn.Dropout(0.5)
        self.hidden = nn.Linear(320, 50)
        self.out = nn.Linear(50, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.dropout2d(self.conv2(x)), 2))
        x = self.dropout(F.relu(self.hidden(x.flatten(1))))
        return self.out(x)


class CNNC(nn.Module):
    """CNN-C, for 32 x 32 colour images: 62,006 parameters."""

    channels_last = True

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, kernel_size=5)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.hidden1 = nn.Linear(400, 120)
        self.hidden2 = nn.Linear(120, 84)
        self.out = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.out(F.relu(self.hidden2(F.relu(self.hidden1(x.flatten(1))))))
