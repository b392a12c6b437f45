"""FedAdp (Wu and Wang 2021): the smaller the angle between a node's gradient and the global one, the more it weighs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.interfaces import Aggregation, CheckLoss, Nodes, Outcome, Updates, Vector, average
from fedpns_ray.core.quantity import Quantity

SHARES = Quantity("shares", "weights of the updates", per="update")


class AdaptiveAggregation(Aggregation):
    """Weights D_i exp(f(theta_i)), normalised, from the smoothed angle theta_i between local and global gradient.

    The global gradient is the mean of the local ones, weighted by data size. The paper smooths over rounds, with all
    nodes in each of them: theta_i(t) = ((t - 1) theta_i(t - 1) + theta) / t. Where only some nodes are drawn, t counts
    the rounds that the node took part in. A zero gradient has no direction: its angle is taken as pi/2.
    """

    name = "adaptive"
    quantities = (SHARES,)
    gompertz: float = Field(5.0, gt=0, le=50)
    """alpha of the Gompertz function: how sharply the contribution falls where the angle passes 1 rad."""
    _angles: NDArray[np.float64]
    _times: NDArray[np.int64]

    def begin(self, nodes: Nodes) -> None:
        self._angles, self._times = np.zeros(nodes.count), np.zeros(nodes.count, dtype=np.int64)

    def combine(self, weights: Vector, updates: Updates, check_loss: CheckLoss) -> Outcome:
        at = list(updates.node_ids)
        self._times[at] += 1
        self._angles[at] += (angles(updates) - self._angles[at]) / self._times[at]
        raw = updates.sizes * np.exp(contribution(self._angles[at], self.gompertz))
        shares = raw / raw.sum()
        notes = {SHARES.key: [float(f"{share:.9g}") for share in shares]}
        return Outcome(average(weights, updates.deltas, shares), aggregated=updates.node_ids, notes=notes)


def angles(updates: Updates) -> NDArray[np.float64]:
    """arccos of <g, g_i> / (||g|| ||g_i||), in radians; the sign and scale common to all gradients do not matter."""
    together = np.einsum("i,ik->k", updates.sizes / updates.sizes.sum(), updates.of_parameters, dtype=np.float64)
    inner = np.einsum("ik,k->i", updates.of_parameters, together, dtype=np.float64)
    lengths = updates.norms() * np.sqrt(np.einsum("k,k->", together, together))
    cosines = np.divide(inner, lengths, out=np.zeros_like(inner), where=lengths > 0)
    return np.arccos(np.clip(cosines, -1, 1))


def contribution(angle: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """The Gompertz function of the paper: f(theta) = alpha (1 - exp(-exp(-alpha (theta - 1))))."""
    return alpha * (1 - np.exp(-np.exp(-alpha * (angle - 1))))
