"""What the engines share: the arrays of the task in the memory order that torch's documentation uses, and a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.limit import CHUNK, MODELS


class ChannelsLast(nn.Module):
    """The same model on inputs that are brought into the memory order that this project uses."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2))


def built(name: str) -> nn.Module:
    """A model by name; with `+channels-last` after the name, on inputs in that order."""
    plain, _, layout = name.partition("+")
    return ChannelsLast(MODELS[plain]()) if layout else MODELS[plain]()


def load(task: str, name: str) -> tuple[dict[str, Any], nn.Module]:
    """The arrays of the task, images as [channel, height, width], and the model."""
    with np.load(task) as file:
        held = dict(file)
    for key in ("x", "test_x"):
        held[key] = np.ascontiguousarray(np.moveaxis(held[key], -1, -3))
    return held, built(name)


@torch.no_grad()
def accuracy(module: nn.Module, held: dict[str, Any]) -> float:
    """On the test set."""
    module.eval()
    x, y = torch.from_numpy(held["test_x"]), torch.from_numpy(held["test_y"])
    right = [int((module(a).argmax(1) == b).sum()) for a, b in zip(x.split(CHUNK), y.split(CHUNK), strict=True)]
    return sum(right) / len(y)
