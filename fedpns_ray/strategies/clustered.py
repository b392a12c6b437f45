"""Clustered sampling (Fraboni et al. 2021): one node from each of m distributions, without bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import Nodes, Probe, Selection, Updates
from fedpns_ray.strategies.fedavg import present
from fedpns_ray.strategies.memory import RememberingSelection, angles, members, squared_distances, ward_merges

Masses = NDArray[np.int64]
"""A row per distribution, a column per node: r_ki times the number of samples of all nodes, exact whole numbers."""


class ClusteredSelection(Selection):
    """Of m = |S_t| distributions r_k, one node each; a node drawn c times weighs c / m.

    Proposition 1 of the paper: the expected sum of the updates is that of all nodes, weighted by data size, if every
    distribution sums to 1 and those of node i sum to m p_i over the distributions. A node that does not return is
    missed by the sum: the weights of the others stay as they are.
    """

    unbiased: ClassVar[Literal["", "nodes", "samples"]] = "samples"
    """The expected sum is the mean over all nodes, each counting by its samples."""
    _nodes: Nodes
    _drawn: Any = ()
    """The nodes of this round's draw, one per distribution: draws are repeated, never resumed, so this is no state."""

    def begin(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def masses(self, rng: np.random.Generator, there: NDArray[np.int64], size: int) -> Masses:
        """The distributions over these nodes."""
        raise NotImplementedError

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        size = min(self._nodes.per_round, len(there))
        rows = self.masses(rng, there, size)
        self._drawn = tuple(int(there[rng.choice(len(there), p=row / row.sum())]) for row in rows)
        return sorted(set(self._drawn))

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        counts = [self._drawn.count(node) for node in updates.node_ids]
        return replace(updates, shares=np.array(counts, dtype=np.float64) / max(1, len(self._drawn)))


class ClusteredBySizeSelection(ClusteredSelection):
    """Algorithm 1: nodes fill the distributions in the order of their data size, the largest first."""

    name = "clustered-size"

    def masses(self, rng: np.random.Generator, there: NDArray[np.int64], size: int) -> Masses:
        sizes = self._nodes.sizes[there]
        rows = np.zeros((size, len(there)), dtype=np.int64)
        return filled(rows, np.argsort(-sizes, kind="stable"), size * sizes, int(sizes.sum()))


class ClusteredBySimilaritySelection(RememberingSelection, ClusteredSelection):
    """Algorithm 2: nodes whose last updates are alike share a distribution; a node not heard of yet is like any other.

    Ward's method builds a tree of the nodes, which is cut into the largest clusters of mass at most 1/m. The m largest
    clusters have a distribution each, and the nodes of the others, the smallest cluster first and its nodes in random
    order, fill these up.
    """

    name = "clustered-similarity"
    similarity: Literal["arccos", "l2"] = "arccos"
    """Between last updates: the angle, or the squared Euclidean distance."""

    def masses(self, rng: np.random.Generator, there: NDArray[np.int64], size: int) -> Masses:
        products = self._products[np.ix_(there, there)]
        apart = angles(products) if self.similarity == "arccos" else squared_distances(products)
        return by_similarity(rng, ward_merges(apart), self._nodes.sizes[there], size)


def filled(rows: Masses, order: Sequence[int] | NDArray[np.int64], masses: NDArray[np.int64], full: int) -> Masses:
    """The distributions, with these nodes' masses put in one after another, each into the first that is not full."""
    room, k = full - rows.sum(axis=1), 0
    for node in order:
        left = int(masses[node])
        while left:
            while not room[k]:
                k += 1
            put = min(left, int(room[k]))
            rows[k, node] += put
            room[k] -= put
            left -= put
    return rows


def by_similarity(
    rng: np.random.Generator, merges: Sequence[tuple[int, int]], sizes: NDArray[np.int64], m: int
) -> Masses:
    """Algorithm 2 from the merges of the tree. A node with p_i of 1/m or more first has floor(m p_i) rows to itself."""
    total, masses = int(sizes.sum()), m * sizes
    alone = [node for node in range(len(sizes)) for _ in range(int(masses[node]) // total)]
    rows = np.zeros((m, len(sizes)), dtype=np.int64)
    rows[np.arange(len(alone)), alone] = total
    rest = masses % total
    clusters = sorted(cut(merges, rest, total), key=lambda cluster: int(rest[cluster].sum()))
    kept = clusters[len(clusters) - (m - len(alone)) :]  # no cluster holds more than a row, so there are enough
    for row, cluster in zip(rows[len(alone) :], kept, strict=True):
        row[cluster] = rest[cluster]
    others = clusters[: len(clusters) - len(kept)]
    order = [int(node) for cluster in others for node in rng.permutation(cluster)]
    return filled(rows, order, rest, total)


def cut(merges: Sequence[tuple[int, int]], masses: NDArray[np.int64], most: int) -> list[list[int]]:
    """The largest clusters of the tree whose mass is at most this, as lists of nodes that have any mass."""
    every = members(merges, len(masses))
    fits = [int(masses[cluster].sum()) <= most for cluster in every]
    inside = {part for k, pair in enumerate(merges) if fits[len(masses) + k] for part in pair}
    found = [
        [node for node in cluster if masses[node]] for k, cluster in enumerate(every) if fits[k] and k not in inside
    ]
    return [cluster for cluster in found if cluster]
