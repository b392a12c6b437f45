"""ResNet-18 with group normalisation, for small colour images such as CIFAR's."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

GROUPS = 32
"""Groups of every normalisation: the default of Wu and He (2018), which divides every width of the network."""


class Block(nn.Module):
    """Two 3 x 3 convolutions and the shortcut around them (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.GroupNorm(GROUPS, outputs))

    def forward(self, x: Tensor) -> Tensor:
        found = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(found + self.shortcut(x))


class ResNet18GN(nn.Module):
    """ResNet-18 for 32 x 32 images: a 3 x 3 stem without pooling, and group instead of batch normalisation.

    Statistics over a batch mislead where every node holds other labels; those over groups of channels do not
    (Hsieh et al. 2020). With 100 classes it has 11,220,132 parameters.
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(shape[0], 64, kernel_size=3, padding=1, bias=False)
        self.norm = nn.GroupNorm(GROUPS, 64)
        blocks = []
        for inputs, outputs in ((64, 64), (64, 128), (128, 256), (256, 512)):
            blocks += [Block(inputs, outputs, stride=1 if inputs == outputs else 2), Block(outputs, outputs, stride=1)]
        self.blocks = nn.Sequential(*blocks)
        self.out = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.out(x.mean(dim=(2, 3)))
