"""Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019) as local optimisers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import Field

from fedpns_ray.core.optimizers.interfaces import Optimizer, Step

if TYPE_CHECKING:
    from torch import Tensor


class Adam(Optimizer):
    """Adam with bias correction (its Algorithm 1), as in torch.optim.Adam; its moments start at 0 in each round."""

    name = "adam"
    beta1: float = Field(0.9, ge=0, lt=1)
    """The decay of the mean of gradients m, from 0 to below 1."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """The decay of the mean of squared gradients v, from 0 to below 1."""
    epsilon: float = Field(1e-8, gt=0, le=1)
    """Added to sqrt(v), so that no step is divided by 0."""
    weight_decay: float = Field(0.0, ge=0, le=1e6)
    """lambda of the penalty lambda/2 ||w||^2: lambda w is added to every gradient; 0: none."""

    def decay(self, weights: Tensor, gradient: Tensor, lr: float) -> None:
        """The weight decay of one step, in place."""
        if self.weight_decay:
            gradient.add_(weights, alpha=self.weight_decay)

    def start(self, weights: Tensor, lr: float) -> Step:
        m, v, steps = weights.new_zeros(weights.shape), weights.new_zeros(weights.shape), 0

        def step(gradient: Tensor) -> None:
            nonlocal steps
            steps += 1
            self.decay(weights, gradient, lr)
            m.lerp_(gradient, 1 - self.beta1)
            v.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
            scale = v.sqrt().div_(math.sqrt(1 - self.beta2**steps)).add_(self.epsilon)
            weights.addcdiv_(m, scale, value=-lr / (1 - self.beta1**steps))

        return step


class AdamW(Adam):
    """Adam with decoupled weight decay: w <- (1 - eta lambda) w before each step, as in torch.optim.AdamW."""

    name = "adamw"
    weight_decay: float = Field(0.01, ge=0, le=1e6)
    """lambda: the share eta lambda of the weights is taken away in every step; 0: none."""

    def decay(self, weights: Tensor, gradient: Tensor, lr: float) -> None:
        weights.mul_(1 - lr * self.weight_decay)
