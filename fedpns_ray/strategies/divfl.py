"""DivFL (Balakrishnan et al. 2022): the nodes whose updates best represent those of all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.interfaces import Probe, Updates
from fedpns_ray.strategies.fedavg import present
from fedpns_ray.strategies.memory import Matrix, RememberingSelection, inner_products, squared_distances

EVERYONE = 2**40
"""More nodes than any population has."""
ROUNDING = 1e-9
"""Sums that differ by less, relatively, are equal."""


class DiverseSelection(RememberingSelection):
    """Greedy facility location: the nodes S that keep G(S) = sum over k of min over i in S of ||g_k - g_i|| small.

    Algorithm 1 of the paper: S grows by the node that lowers G(S) most, looked for among all remaining nodes or, in
    stochastic greedy, in a random part of them. g_k is a node's last known update. A node without one trains and sends
    in the first round in which it can: in round 1 that is every node. If more than |S_t| nodes have trained, the most
    representative ones are aggregated. With `gradients: fresh` (the paper's ideal) every node trains and sends in every
    round. What is sent only to choose from is counted as traffic.
    """

    name = "divfl"
    gradients: Literal["last", "fresh"] = "last"
    """Updates to compare: the last known ones, or fresh ones from all nodes in every round."""
    distance: Literal["norm", "squared"] = "norm"
    """Between updates: ||g_k - g_i|| (paper and released code), or its square (a widely used second implementation)."""
    subset: float = Field(1.0, gt=0, le=1)
    """Stochastic greedy: the fraction of nodes that each step looks at, at least |S_t| of them; 1: all (greedy)."""

    def trains(self, per_round: int) -> int:
        return EVERYONE

    def gathers(self) -> bool:
        return True

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        if self.gradients == "fresh":
            return [int(node) for node in there]
        known, asked = np.flatnonzero(self._known), [int(node) for node in there[~self._known[there]]]
        apart = self._apart(self._products[np.ix_(known, known)])
        left, size = np.searchsorted(known, there[self._known[there]]), self._nodes.per_round - len(asked)
        return asked + [int(known[k]) for k in facility_location(rng, apart, left, size, self._looked)]

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        """Where more nodes trained than are aggregated, those that represent the others best."""
        if len(updates) <= self._nodes.per_round:
            return updates
        rows = updates.of_parameters[:, -self._rows.shape[1] :]
        apart = self._apart(inner_products(rows, rows))
        picked = facility_location(rng, apart, np.arange(len(updates)), self._nodes.per_round, self._looked)
        return updates.subset(sorted(picked))

    def _apart(self, products: Matrix) -> Matrix:
        squared = squared_distances(products)
        return np.sqrt(squared) if self.distance == "norm" else squared

    @property
    def _looked(self) -> int:
        """Nodes that each step of the greedy search looks at."""
        return max(self._nodes.per_round, int(self.subset * self._nodes.count))


def facility_location(
    rng: np.random.Generator, apart: Matrix, candidates: NDArray[np.int64], size: int, looked: int
) -> list[int]:
    """Up to `size` candidates, picked one after another so that sum_k min_{i in S} apart_ki falls most each time.

    Each step looks at `looked` of the remaining candidates, drawn uniformly, or at all if there are no more. A tie goes
    to the one looked at first: the lowest position, unless they are drawn. (Ties are common: of two nodes that are
    nearest to each other, either leaves their distance.)
    """
    left, picked = [int(k) for k in candidates], list[int]()
    nearest = np.full(len(apart), np.inf)
    while left and len(picked) < size:
        looks = left if looked >= len(left) else [int(k) for k in rng.choice(left, looked, replace=False)]
        covered = np.minimum(nearest[:, None], apart[:, looks])
        costs = covered.sum(axis=0)
        best = int(np.argmax(costs <= costs.min() * (1 + ROUNDING)))
        nearest = covered[:, best]
        picked.append(looks[best])
        left.remove(looks[best])
    return picked
