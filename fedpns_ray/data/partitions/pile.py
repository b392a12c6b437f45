"""Shuffled piles of samples that nodes draw from.

Nodes that draw from one pile share no sample while the pile lasts; a population larger than the data set starts the
pile over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data.holdings import Holdings, dealt
from fedpns_ray.errors import InputError


def label_piles(rng: np.random.Generator, labels: NDArray[np.int64], classes: int) -> list[NDArray[np.int64]]:
    """The samples of each label, shuffled."""
    return [rng.permutation(np.flatnonzero(labels == label)) for label in range(classes)]


def deal_labels(piles: Sequence[NDArray[np.int64]], labels: NDArray[np.int64], counts: NDArray[np.int64]) -> Holdings:
    """Node i is given counts[i, k] samples of labels[i, k]; refused if a label has too few samples."""
    there = np.array([len(pile) for pile in piles])[labels]
    for node, k in np.argwhere(counts > there)[:1]:
        refuse_too_many(int(counts[node, k]), int(there[node, k]), f"samples of label {labels[node, k]}")
    return dealt(piles, labels, counts)


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
