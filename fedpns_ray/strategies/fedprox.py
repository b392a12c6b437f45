"""FedProx (Li et al. 2018): a proximal term keeps local models near the global one; slow nodes may do less work."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, NonNegativeFloat

from fedpns_ray.core.interfaces import Objective


class ProximalObjective(Objective):
    """h_i(w; w_t) = F_i(w) + mu/2 ||w - w_t||^2 (equation (2) of FedProx): mu (w - w_t) is added to every gradient.

    As in its experiments, a part of the drawn nodes cannot do E epochs in time and does a number drawn from 1 .. E
    instead, another one each round. At E = 1 there is nothing less to do. Here each node is slow by itself with that
    probability; the authors' code makes exactly that part of the drawn nodes slow, and draws from 1 .. E - 1.
    """

    name = "proximal"
    mu: NonNegativeFloat = 1.0
    """The weight of the proximal term (the paper tunes it for each task; its best for MNIST, with MLR, is 1)."""
    stragglers: float = Field(0.0, ge=0, le=1)
    """The part of nodes that do fewer epochs (the paper: 0, 0.5 and 0.9)."""

    def correct(self, gradient: Any, weights: Any, anchor: Any) -> None:
        gradient.add_(weights - anchor, alpha=self.mu)

    def epochs(self, most: int, rng: np.random.Generator) -> int:
        return int(rng.integers(1, most, endpoint=True)) if rng.random() < self.stragglers else most
