"""Tasks: what a model is to do with its data, which decides its loss and what is counted on the test set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
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


def cohort_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of (N, C) outputs without gathering: under vmap it takes a third of the operators.

    On CUDA, the gradient of `gather` would be summed up in any order, or sorted first.
    """
    if targets.ndim > 1:
        return cross_entropy(outputs, targets)
    others = targets.unsqueeze(-1) != torch.arange(outputs.shape[-1], device=outputs.device)
    return outputs.log_softmax(-1).masked_fill(others, 0.0).sum() / -len(targets)


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

    def tested_each(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """One row per part: samples predicted correctly (NaN where nothing is right or wrong), sum of their losses.

        In float64. Where a sample has several positions, it counts by its mean over them. What is computed sample by
        sample is computed for all parts at once, to the same bits. Nothing is read from the device.
        """
        if self.own_loss is None and self.is_cross_entropy(tuple(targets[0].shape[1:])):
            return _classified(torch.cat(list(outputs)), targets)
        return torch.stack([torch.stack(self.tested(*part)) for part in zip(outputs, targets, strict=True)])

    def tested(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The row of one part."""
        positions = targets[0].numel()
        if self.own_loss is not None:
            loss = self.own_loss(outputs.double(), targets).double() * len(targets)
        else:
            loss = _mean_over(positions, self.built_in(outputs.double(), targets, reduction="sum"))
        if not self.labels:
            return loss.new_full((), float("nan")), loss
        return _mean_over(positions, (outputs.argmax(-1) == targets).sum(dtype=torch.float64)), loss


def _classified(outputs: Tensor, targets: Sequence[Tensor]) -> Tensor:
    """`Task.tested_each` of the cross entropy with one label per sample; `outputs` are those of all parts."""
    sizes = [len(part) for part in targets]
    log_p = outputs.double().log_softmax(-1).split(sizes)
    right = (outputs.argmax(-1) == torch.cat(list(targets))).split(sizes)
    losses = [F.nll_loss(own, part, reduction="sum") for own, part in zip(log_p, targets, strict=True)]
    return torch.stack([torch.stack([own.sum(dtype=torch.float64) for own in right]), torch.stack(losses)], dim=1)


def _mean_over(positions: int, total: Tensor) -> Tensor:
    return total if positions == 1 else total / positions


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
