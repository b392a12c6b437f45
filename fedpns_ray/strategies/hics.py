"""HiCS-FL (Chen and Vikalo 2024): clusters of nodes by how balanced their labels seem, balanced ones first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from fedpns_ray.core.interfaces import Nodes, Outcome, Probe, Updates
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.strategies.fedavg import present, uniform
from fedpns_ray.strategies.memory import (
    Matrix,
    RememberingSelection,
    angles,
    members,
    needed_last_layer,
    ward_merges,
)

ENTROPY = Quantity("estimated_entropy", "estimated label entropy of the drawn nodes")


class HeterogeneityGuidedSelection(RememberingSelection):
    """M clusters of nodes; a cluster is drawn by exp(gamma_t x its mean entropy), then a node in it uniformly.

    A node's label entropy is estimated by H_k = entropy(softmax(b_k / T)), where b_k is the last update of the output
    layer's biases. Ward's method clusters by arccos(u_k, u_j) + lambda |H_k - H_j|, with u_k the last update of the
    output layer. gamma_t falls linearly from gamma to 0 over `anneal` rounds. A cluster is drawn at most as often as it
    has nodes. Until every node is known, those that are not are drawn in the order of their ids.
    """

    name = "hics"
    quantities = (ENTROPY,)
    remembered: Literal["last-layer"] = "last-layer"
    """What is kept of each node's last update."""
    clusters: PositiveInt = 10
    """M, the number of clusters (no more than nodes)."""
    temperature: PositiveFloat = 0.001
    """T: lower values tell more nodes apart. In the unit of an update, so it goes with lr and local steps."""
    estimate: Literal["biases", "weights"] = "biases"
    """What entropy is estimated from: the update of the biases (the paper), or row means of the weights (its code)."""
    renewal: Literal["always", "never"] = "always"
    """Whether the update of a node that trains again replaces its first one (the paper), or not (see hics.md)."""
    entropy_weight: NonNegativeFloat = 10.0
    """lambda, the weight of a difference in entropy, beside the angle between updates."""
    gamma: NonNegativeFloat = 4.0
    """How strongly balanced clusters are preferred at first."""
    anneal: int = Field(200, ge=1)
    """Rounds after which clusters are equally likely."""
    _round: int
    _last_entropy: float

    def begin(self, nodes: Nodes) -> None:
        super().begin(nodes)
        self._round, self._last_entropy = 0, 0.0

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        size = min(self._nodes.per_round, len(there))
        if not self._known[there].all():
            return self.unknown_first(rng, there, size)
        entropy = self.entropies(there)
        groups = self.groups(there, entropy)
        p = preferences(np.array([entropy[group].mean() for group in groups]), self._gamma)
        counts = times_drawn(rng, p, [len(group) for group in groups], size)
        picked = [uniform(rng, np.array(group), count) for group, count in zip(groups, counts, strict=True)]
        return [int(there[k]) for group in picked for k in group]

    def groups(self, nodes: NDArray[np.int64], entropy: NDArray[np.float64]) -> list[list[int]]:
        """The clusters of these nodes, as positions among them."""
        apart = angles(self._products[np.ix_(nodes, nodes)])
        apart += self.entropy_weight * np.abs(entropy[:, None] - entropy[None, :])
        return cut_into(ward_merges(apart), len(nodes), self.clusters)

    @property
    def _gamma(self) -> float:
        """gamma_t = gamma (1 - t / T) with t rounds done."""
        return self.gamma * max(0.0, 1 - self._round / self.anneal)

    def entropies(self, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """H_k of these nodes."""
        outputs, inputs = needed_last_layer(self._nodes, self.name)
        rows = self._rows[nodes].astype(np.float64)
        weights, biases = rows[:, : outputs * inputs], rows[:, outputs * inputs :]
        evidence = biases if self.estimate == "biases" else weights.reshape(len(nodes), outputs, inputs).mean(axis=2)
        return entropies(evidence, self.temperature)

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        new = [k for k, node in enumerate(updates.node_ids) if self.renewal == "always" or not self._known[node]]
        super().learn(updates.subset(new), outcome)
        self._round += 1
        if len(updates):
            self._last_entropy = float(self.entropies(np.array(updates.node_ids)).mean())

    def notes(self) -> dict[str, Any]:
        return {ENTROPY.key: self._last_entropy}


def entropies(evidence: Matrix, temperature: float) -> NDArray[np.float64]:
    """The entropy, in nats, of softmax(row / T) of every row."""
    scaled = evidence / temperature
    scaled -= scaled.max(axis=1, keepdims=True)
    p = np.exp(scaled)
    p /= p.sum(axis=1, keepdims=True)
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)


def preferences(entropy: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """p_m proportional to exp(gamma_t x H_m) of every cluster."""
    p = np.exp(gamma * (entropy - entropy.max()))
    return p / p.sum()


def cut_into(merges: Sequence[tuple[int, int]], count: int, clusters: int) -> list[list[int]]:
    """The clusters that are left when the last merges are undone, so that there are so many (or a single node each)."""
    kept = merges[: max(0, count - clusters)]
    inside = {part for pair in kept for part in pair}
    return [group for k, group in enumerate(members(kept, count)) if k not in inside]


def times_drawn(rng: np.random.Generator, p: NDArray[np.float64], sizes: Sequence[int], draws: int) -> list[int]:
    """How often each cluster is drawn, one draw after another by p among those that still have an undrawn node."""
    counts = np.zeros(len(sizes), dtype=np.int64)
    for _ in range(draws):
        open_ = np.flatnonzero(counts < sizes)
        mass = p[open_] if p[open_].sum() > 0 else np.ones(len(open_))
        counts[open_[rng.choice(len(open_), p=mass / mass.sum())]] += 1
    return [int(count) for count in counts]
