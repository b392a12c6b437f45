"""Shuffled piles of samples that nodes draw from.

Nodes that draw from one pile share no sample while the pile lasts; a population larger than the data set starts the
pile over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.errors import InputError


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


def refuse_too_many(wanted: int, there: int, what: str) -> None:
    if wanted > there:
        problem = f"a node would hold {wanted} {what}, of which there are {there}"
        raise InputError("samples_per_node", problem=problem, hint="lower it")
