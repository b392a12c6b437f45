"""FedAvg with partial participation (Section III-B): a random draw, plain local SGD, the mean over the drawn nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import (
    Aggregation,
    CheckLoss,
    Claim,
    Nodes,
    Objective,
    Outcome,
    Probe,
    Selection,
    ServerOptimizer,
    Updates,
    Vector,
    average,
)
from fedpns_ray.errors import InputError, Shown


class RandomSelection(Selection):
    """Draws |S_t| nodes uniformly."""

    name = "random"
    unbiased: ClassVar[Claim] = "nodes"
    _nodes: Nodes

    def begin(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        return uniform(rng, present(probe, self._nodes.count), self._nodes.per_round)


class HalfSelection(Selection):
    """Draws half of S_t among the i.i.d. nodes and half among the others (the experiment of Figure 1)."""

    name = "half"
    _nodes: Nodes

    def begin(self, nodes: Nodes) -> None:
        half, iid = nodes.per_round // 2, int(nodes.iid.sum())
        if nodes.per_round - half > iid or half > nodes.count - iid:
            wanted = f"draws {nodes.per_round - half} i.i.d. and {half} other nodes per round"
            raise InputError("selection", Shown("half"), f"there are {iid} and {nodes.count - iid}", problem=wanted)
        self._nodes = nodes

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        half, there = self._nodes.per_round // 2, present(probe, self._nodes.count)
        iid = uniform(rng, there[self._nodes.iid[there]], self._nodes.per_round - half)
        return iid + uniform(rng, there[~self._nodes.iid[there]], half)


def uniform(rng: np.random.Generator, among: NDArray[np.int64], size: int) -> list[int]:
    """`size` distinct nodes out of `among`, or all of them if those are fewer; all equally likely."""
    return [int(node) for node in rng.choice(among, size=min(size, len(among)), replace=False)] if len(among) else []


def by_probability(rng: np.random.Generator, p: NDArray[np.float64], size: int) -> list[int]:
    """`size` distinct positions, drawn one after another by p. If fewer have p > 0: all of those, the rest uniformly.

    A p that is not finite, such as the norm of a node whose training diverged, counts as 0.
    """
    positive = (p > 0) & np.isfinite(p)
    possible = np.flatnonzero(positive)
    missing = size - len(possible)
    if missing >= 0:
        return [int(k) for k in possible] + uniform(rng, np.flatnonzero(~positive), missing)
    return [int(k) for k in rng.choice(possible, size, replace=False, p=p[possible] / p[possible].sum())]


def present(probe: Probe, count: int) -> NDArray[np.int64]:
    """The nodes that can be drawn this round, in the order of their ids; all of them where a probe does not say."""
    available: NDArray[np.int64] | None = getattr(probe, "available", None)
    return np.arange(count) if available is None else available


class PlainObjective(Objective):
    """The loss of the node's own data (3), and nothing else."""

    name = "plain"


class MeanAggregation(Aggregation):
    """(5): the mean of the updates, all weighted equally unless the selection sets shares."""

    name = "mean"

    def combine(self, weights: Vector, updates: Updates, check_loss: CheckLoss) -> Outcome:
        return Outcome(average(weights, updates.deltas, updates.shares), aggregated=updates.node_ids)


class NoServer(ServerOptimizer):
    """The aggregated model is the next one (5)."""

    name = "none"
