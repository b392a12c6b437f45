"""Stochastic gradient descent (4), with momentum, weight decay and gradient clipping where they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, ValidationInfo, field_validator

from fedpns_ray.core.optimizers.interfaces import Optimizer, Step

if TYPE_CHECKING:
    from torch import Tensor

TINY = 1e-6
"""Added to a norm before division, as torch's clip_grad_norm_ does."""


class SGD(Optimizer):
    """w <- w - eta g (4); with momentum, w <- w - eta b, where b <- momentum b + g, as in torch.optim.SGD."""

    name = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    """The share of the last step's direction that is kept, from 0 (none) to below 1."""
    nesterov: bool = False
    """Nesterov's momentum: the step is g + momentum b."""
    weight_decay: float = Field(0.0, ge=0, le=1e6)
    """lambda of the penalty lambda/2 ||w||^2: lambda w is added to every gradient; 0: none."""
    clip_gradient: float = Field(0.0, ge=0, le=1e38)
    """The largest norm of a node's gradient in one step: a longer one is scaled down to it; 0: no limit."""

    @field_validator("nesterov")
    @classmethod
    def _with_momentum_only(cls, nesterov: bool, others: ValidationInfo) -> bool:
        if nesterov and not others.data.get("momentum"):
            raise ValueError("it needs a momentum above 0")
        return nesterov

    def start(self, weights: Tensor, lr: float) -> Step:
        if not (self.momentum or self.weight_decay or self.clip_gradient):
            return lambda gradient: weights.add_(gradient, alpha=-lr)
        kept: Tensor | None = None

        def step(gradient: Tensor) -> None:
            nonlocal kept
            if self.clip_gradient:
                gradient.mul_(shrinking(gradient, self.clip_gradient))
            if self.weight_decay:
                gradient.add_(weights, alpha=self.weight_decay)
            if self.momentum:
                kept = gradient.clone() if kept is None else kept.mul_(self.momentum).add_(gradient)
                gradient = gradient.add_(kept, alpha=self.momentum) if self.nesterov else kept
            weights.add_(gradient, alpha=-lr)

        return step


def shrinking(gradient: Tensor, longest: float) -> Tensor:
    """The factor, at most 1, that scales each row's norm down to `longest`."""
    return (longest / (gradient.norm(dim=-1, keepdim=True) + TINY)).clamp_(max=1.0)
