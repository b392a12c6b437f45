"""FedProx (Li et al. 2018): a proximal term keeps local models near the global one; slow nodes may do less work."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, NonNegativeFloat

from fedpns_ray.core.interfaces import Objective


class ProximalObjective(Objective):
    """h_i(w; w_t) = F_i(w) + mu/2 ||w - w_t||^2 (equation (2) of FedProx): mu (w - w_t) is added to every gradient.

    As in its experiments, a fraction of the drawn nodes cannot finish E epochs in time and does a number drawn from
    1 .. E instead, redrawn each round. At E = 1 this changes nothing. Here each node is slow independently with that
    probability; the authors' code makes exactly that fraction of the drawn nodes slow, and draws from 1 .. E - 1.
    """

    name = "proximal"
    mu: NonNegativeFloat = 1.0
    """The weight of the proximal term (the paper tunes it for each task; its best for MNIST, with MLR, is 1)."""
    stragglers: float = Field(0.0, ge=0, le=1)
    """The fraction of nodes that do fewer epochs (the paper: 0, 0.5 and 0.9)."""

    def correct(self, gradient: Any, weights: Any, anchor: Any) -> None:
        gradient.add_(weights - anchor, alpha=self.mu)

    def epochs(self, most: int, rng: np.random.Generator) -> int:
        return int(rng.integers(1, most, endpoint=True)) if rng.random() < self.stragglers else most
