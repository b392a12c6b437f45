"""How a labelled data set is spread over nodes.

A partition hands out samples from shuffled piles (the whole set, or one pile per label). Nodes that draw from one pile
share no sample while the pile lasts; a population larger than the data set starts the pile over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.errors import InputError

Held = list[NDArray[np.int64]]


class Pile:
    """Samples in shuffled order, handed out one after another; when they are used up, it starts over."""

    def __init__(self, rng: np.random.Generator, positions: NDArray[np.int64]) -> None:
        self._shuffled = rng.permutation(positions)
        self._next = 0

    def __len__(self) -> int:
        return len(self._shuffled)

    def take(self, count: int) -> NDArray[np.int64]:
        at = (self._next + np.arange(count)) % len(self._shuffled)
        self._next = (self._next + count) % len(self._shuffled)
        return self._shuffled[at]


def label_piles(rng: np.random.Generator, labels: NDArray[np.int64], classes: int) -> list[Pile]:
    return [Pile(rng, np.flatnonzero(labels == label)) for label in range(classes)]


def node_sizes(rng: np.random.Generator, nodes: int, samples: int, spread: float) -> NDArray[np.int64]:
    """D_i: all equal, or log-normal with mean D and standard deviation `spread` of log D_i."""
    if spread == 0:
        return np.full(nodes, samples, dtype=np.int64)
    sizes = samples * np.exp(spread * rng.standard_normal(nodes) - spread**2 / 2)
    return np.maximum(1, np.rint(sizes)).astype(np.int64)


def iid(rng: np.random.Generator, labels: NDArray[np.int64], sizes: NDArray[np.int64]) -> Held:
    """Every node draws from the whole set."""
    whole = Pile(rng, np.arange(len(labels)))
    _refuse_too_many(int(sizes.max()), len(whole), "samples of the training set")
    return [whole.take(int(size)) for size in sizes]


def sigma_rho(
    rng: np.random.Generator,
    labels: NDArray[np.int64],
    classes: int,
    sizes: NDArray[np.int64],
    iid_nodes: int,
    rho: int,
) -> Held:
    """The paper's partition: i.i.d. nodes first; each other node holds D_i / rho samples of each of rho labels."""
    held = iid(rng, labels, sizes[:iid_nodes]) if iid_nodes else []
    piles = label_piles(rng, labels, classes)
    for size in sizes[iid_nodes:]:
        chosen = rng.choice(classes, size=rho, replace=False)
        parts = [len(part) for part in np.array_split(np.arange(size), rho)]
        for label, part in zip(chosen, parts, strict=True):
            _refuse_too_many(part, len(piles[label]), f"samples of label {label}")
        held.append(np.concatenate([piles[label].take(part) for label, part in zip(chosen, parts, strict=True)]))
    return held


def dirichlet(
    rng: np.random.Generator, labels: NDArray[np.int64], classes: int, sizes: NDArray[np.int64], concentration: float
) -> Held:
    """Every node's label distribution is drawn from a symmetric Dirichlet distribution (Hsu et al. 2019)."""
    piles = label_piles(rng, labels, classes)
    held = []
    for size in sizes:
        counts = rng.multinomial(int(size), rng.dirichlet(np.full(classes, concentration)))
        for label, count in enumerate(counts):
            _refuse_too_many(int(count), len(piles[label]), f"samples of label {label}")
        held.append(np.concatenate([piles[label].take(int(count)) for label, count in enumerate(counts)]))
    return held


def shards(rng: np.random.Generator, labels: NDArray[np.int64], sizes: NDArray[np.int64], shards_per_node: int) -> Held:
    """McMahan et al. 2017: the label-sorted set is cut into shards; every node holds a few of them, at random."""
    by_label = np.argsort(labels, kind="stable")
    pieces = len(sizes) * shards_per_node
    if pieces > len(labels):
        allowed = f"{len(sizes)} nodes would cut {len(labels)} samples into {pieces} shards"
        raise InputError("shards_per_node", shards_per_node, allowed)
    cut = np.array_split(by_label, pieces)
    order = rng.permutation(pieces)
    held = []
    for node, size in enumerate(sizes):
        mine = [cut[k] for k in order[node * shards_per_node : (node + 1) * shards_per_node]]
        parts = [len(part) for part in np.array_split(np.arange(size), shards_per_node)]
        for piece, part in zip(mine, parts, strict=True):
            _refuse_too_many(part, len(piece), "samples of a shard")
        held.append(np.concatenate([rng.permutation(piece)[:part] for piece, part in zip(mine, parts, strict=True)]))
    return held


def _refuse_too_many(wanted: int, there: int, what: str) -> None:
    if wanted > there:
        problem = f"a node would hold {wanted} {what}, of which there are {there}"
        raise InputError("samples_per_node", problem=problem, hint="lower it")
