"""Probabilistic node selection (Section IV-C): nodes that were labelled are drawn less often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from fedpns_ray.core.interfaces import Nodes, Outcome, Probe, Selection, Updates
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.strategies.fedavg import by_probability, present

IID_PROBABILITY = Quantity("iid_probability", "probability of i.i.d. nodes")
PROBABILITY = Quantity("probability", "probability", per="node")
MOST_NODES = 1000
"""Up to this many nodes, every node's probability is recorded in every round."""


class ProbabilisticSelection(Selection):
    """Draws S_t by the probabilities p, which equations (7) and (8) move after every round."""

    name = "pns"
    quantities = (IID_PROBABILITY, PROBABILITY)
    alpha: PositiveFloat = 2.0
    """How fast the probability falls with x, the fraction of a node's draws in which it was labelled (7)."""
    beta: float = Field(0.7, ge=0, le=1)
    """The smallest decrement, before the power alpha (7)."""
    _nodes: Nodes
    _p: NDArray[np.float64]
    _drawn: NDArray[np.int64]
    _labelled: NDArray[np.int64]

    def begin(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._p = np.full(nodes.count, 1 / nodes.count)
        self._drawn = np.zeros(nodes.count, dtype=np.int64)
        self._labelled = np.zeros(nodes.count, dtype=np.int64)

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        return [int(there[k]) for k in by_probability(rng, self._p[there], self._nodes.per_round)]

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        self._drawn[list(updates.node_ids)] += 1
        labelled = np.array(outcome.labelled, dtype=np.int64)
        self._labelled[labelled] += 1
        x = self._labelled[labelled] / self._drawn[labelled]
        self._p = move_probabilities(self._p, labelled, x, self.alpha, self.beta)

    def notes(self) -> dict[str, Any]:
        iid = float(self._p[self._nodes.iid].sum())
        whole = {PROBABILITY.key: [float(f"{p:.9g}") for p in self._p]} if self._nodes.count <= MOST_NODES else {}
        return {IID_PROBABILITY.key: float(f"{iid:.9g}"), **whole}


def move_probabilities(
    p: NDArray[np.float64], labelled: NDArray[np.int64], x: NDArray[np.float64], alpha: float, beta: float
) -> NDArray[np.float64]:
    """(7) and (8): labelled nodes lose p_i min((x_i + beta)^alpha, 1), all others share the loss equally.

    Where every node of K is labelled, none is left to share it, and p stays as it is.
    """
    others = np.ones(len(p), dtype=bool)
    others[labelled] = False
    if not others.any():
        return p
    decrement = p[labelled] * np.minimum((x + beta) ** alpha, 1.0)
    moved = p.copy()
    moved[labelled] -= decrement
    moved[others] += decrement.sum() / others.sum()
    return moved
