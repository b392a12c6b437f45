"""FedAvgM (Hsu et al. 2019): momentum at the server."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.interfaces import Nodes, ServerOptimizer, Vector


class MomentumServer(ServerOptimizer):
    """v <- beta v + Delta, w <- w + eta v, where Delta is the aggregated step."""

    name = "momentum"
    lr: float = Field(1.0, gt=0, le=1e6)
    """eta, the server's learning rate."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """beta, the share of v that is kept, from 0 to below 1."""
    _v: NDArray[np.float64]

    def begin(self, nodes: Nodes) -> None:
        self._v = np.zeros(nodes.parameters)

    def move(self, weights: Vector, aggregated: Vector) -> Vector:
        self._v = self.momentum * self._v + (aggregated.astype(np.float64) - weights)
        return (weights + self.lr * self._v).astype(np.float32)
