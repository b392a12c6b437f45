"""Tasks: what a model is to do with its data, which decides its loss and what is counted on the test set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor

from fedpns_ray.core.user_code import import_path
from fedpns_ray.errors import InputError, Shown

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) → the mean loss."""


def cross_entropy(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Of (N, C) outputs and N labels, or of (N, L, C) outputs and a label for each of L positions."""
    if targets.ndim == 1:
        return F.cross_entropy(outputs, targets, reduction=reduction)
    return F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction=reduction)


def squared_error(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """The shapes are matched first: (N, 1) minus (N,) would silently be a matrix."""
    return F.mse_loss(outputs.reshape(targets.shape), targets.to(outputs.dtype), reduction=reduction)


class Task(NamedTuple):
    """What is minimised and what is counted."""

    name: str
    built_in: Any
    """Its own loss, as a mean or as a sum."""
    labels: bool = True
    """Whether targets are labels, so that predictions are right or wrong."""
    own_loss: Loss | None = None
    """The user's, in place of its own."""

    @property
    def loss(self) -> Loss:
        return self.own_loss or self.built_in

    def is_cross_entropy(self, targets: tuple[int, ...]) -> bool:
        """Whether the loss is the cross entropy of one label per sample, whose gradient has a closed form."""
        return self.loss is cross_entropy and not targets

    def outputs(self, targets: tuple[int, ...], classes: int) -> tuple[int, ...]:
        """The shape of a model's outputs for one sample, where that of its target is `targets`."""
        return (*targets, classes) if self.labels else (classes,)

    def tested(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Samples predicted correctly (NaN where nothing is right or wrong) and the sum of their losses, in float64.

        Where a sample has several positions, it counts by its mean over them.
        """
        positions = targets[0].numel()
        if self.own_loss is not None:
            loss = float(self.own_loss(outputs.double(), targets)) * len(targets)
        else:
            loss = float(self.built_in(outputs.double(), targets, reduction="sum")) / positions
        correct = float((outputs.argmax(-1) == targets).sum()) / positions if self.labels else float("nan")
        return correct, loss


TASKS = {
    task.name: task
    for task in (
        Task("classification", cross_entropy),
        Task("next-token", cross_entropy),
        Task("regression", squared_error, labels=False),
    )
}
CLASSIFICATION = TASKS["classification"]


def find_task(name: str, loss: str = "") -> Task:
    """The task that a data set names, with the loss that an import path names."""
    if name not in TASKS:
        raise InputError("dataset", Shown(name), f"choose from {', '.join(TASKS)}", problem="is an unknown task")
    if not loss:
        return TASKS[name]
    function = import_path(loss, "loss")
    if not callable(function):
        allowed = "it must be a function of (outputs, targets)"
        raise InputError("loss", Shown(loss), allowed, problem=f"is an object of type {type(function).__name__}")
    return TASKS[name]._replace(own_loss=function)
