"""SCAFFOLD (Karimireddy et al. 2020): control variates correct the drift of local steps on unequal data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import Nodes, Objective, Rows, Updates, Vector


class ControlVariateObjective(Objective):
    """Every local step is y <- y - eta_l (g_i(y) - c_i + c), where c_i estimates the gradient of node i, c their mean.

    Algorithm 1 with option II: after K steps c_i <- c_i - c + (x - y) / (K eta_l), the mean of the gradients of the
    round; and c <- c + 1/N times the sum of the changes of c_i over the nodes that sent their update, so that c stays
    the mean over all N nodes. All begin at 0. The global step size eta_g is 1; another one is the server's
    (`server momentum` with `server.momentum 0` and `server.lr`). c is summed in float64.
    """

    name = "control-variates"
    keeps_states = True
    sent_along = 1
    needs_plain_steps = True
    _nodes: Nodes
    _c: NDArray[np.float64]

    def begin(self, nodes: Nodes) -> None:
        self._nodes, self._c = nodes, np.zeros(nodes.parameters)

    def broadcast(self) -> Vector:
        return self._c.astype(np.float32)

    def shift(self, states: Rows, shared: Vector) -> Rows:
        return shared - states

    def next_states(self, states: Rows, shared: Vector, updates: Updates) -> Rows:
        path = (updates.steps * updates.lr).astype(np.float32)[:, None]
        return states - shared - updates.of_parameters / path

    def learn(self, before: Rows, after: Rows) -> None:
        self._c += (after.astype(np.float64) - before).sum(axis=0) / self._nodes.count
