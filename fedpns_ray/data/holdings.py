"""Who holds what, at a few bytes per node: stretches of piles instead of lists of positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.errors import InputError, Shown

Positions = NDArray[np.int32] | NDArray[np.int64]
CHUNK = 1_000_000
"""Samples that are looked at together when a whole population is summed up: bounds the memory."""


@dataclass(frozen=True)
class Holdings(Sequence[Positions]):
    """For each node, the positions of its samples in the training set, worked out when they are asked for.

    Piles lie one after another; a stretch that reaches the end of its pile continues at the start of that pile.
    """

    cards: Positions
    """The samples of all piles."""
    bounds: NDArray[np.int64]
    """Pile k is cards[bounds[k] : bounds[k + 1]]."""
    piles: NDArray[np.int32]
    """The pile of each stretch, node after node."""
    starts: NDArray[np.int64]
    """Where in its pile each stretch begins."""
    counts: NDArray[np.int64]
    """Samples in each stretch."""
    offsets: NDArray[np.int64]
    """Node i holds the stretches offsets[i] to offsets[i + 1]."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """D_i."""
        ends = np.concatenate([[0], np.cumsum(self.counts)])[self.offsets]
        return np.diff(ends)

    @overload
    def __getitem__(self, node: int) -> Positions: ...

    @overload
    def __getitem__(self, node: slice) -> list[Positions]: ...

    def __getitem__(self, node: int | slice) -> Positions | list[Positions]:
        if isinstance(node, slice):
            return [self.of(k, k + 1) for k in range(*node.indices(len(self)))]
        if not -len(self) <= node < len(self):
            raise IndexError(node)
        return self.of(node % len(self), node % len(self) + 1)

    def of(self, first: int, last: int) -> Positions:
        """The samples of the nodes first … last - 1, node after node."""
        some = slice(self.offsets[first], self.offsets[last])
        piles, counts = self.piles[some], self.counts[some]
        begins = self.bounds[piles]
        within = np.arange(counts.sum()) + np.repeat(self.starts[some] - np.cumsum(counts) + counts, counts)
        within %= np.repeat(self.bounds[piles + 1] - begins, counts)
        within += np.repeat(begins, counts)
        return self.cards[within]

    def chunks(self) -> Iterator[tuple[int, int, Positions]]:
        """All nodes in order, some at a time: the first, the one after the last, and their samples."""
        ends, first = np.cumsum(self.sizes), 0
        while first < len(self):
            before = ends[first] - self.sizes[first]
            last = max(first + 1, int(np.searchsorted(ends, before + CHUNK, side="right")))
            yield first, last, self.of(first, last)
            first = last


def dealt(piles: Sequence[NDArray[np.int64]], taken: NDArray[np.int64], counts: NDArray[np.int64]) -> Holdings:
    """Shuffled piles, dealt out: row by row, node i is given counts[i, k] samples of the pile taken[i, k].

    Nodes that draw from one pile share no sample while it lasts; when it is used up, it starts over.
    """
    lengths = np.array([len(pile) for pile in piles])
    flat, sizes = taken.ravel(), counts.ravel()
    starts = np.empty(len(flat), dtype=np.int64)
    for k, length in enumerate(lengths):
        mine = np.flatnonzero(flat == k)
        starts[mine] = (np.cumsum(sizes[mine]) - sizes[mine]) % max(1, length)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    offsets = np.arange(len(taken) + 1) * taken.shape[1]
    return Holdings(np.concatenate(piles), bounds, flat.astype(np.int32), starts, sizes, offsets)


def joined(first: Holdings, then: Holdings) -> Holdings:
    """The nodes of both, one after another."""
    return Holdings(
        np.concatenate([first.cards, then.cards]),
        np.concatenate([first.bounds, then.bounds[1:] + len(first.cards)]),
        np.concatenate([first.piles, then.piles + np.int32(len(first.bounds) - 1)]),
        np.concatenate([first.starts, then.starts]),
        np.concatenate([first.counts, then.counts]),
        np.concatenate([first.offsets, then.offsets[1:] + len(first.piles)]),
    )


def listed(held: Sequence[Positions], samples: int) -> Holdings:
    """Lists of positions among so many samples, as one pile."""
    sizes = np.array([len(own) for own in held], dtype=np.int64)
    kind = np.int32 if samples < 2**31 else np.int64
    cards: Positions = np.concatenate([np.empty(0, dtype=kind), *held], dtype=kind, casting="unsafe")  # type: ignore[assignment]
    return one_pile(cards, sizes)


def checked_holdings(held: Any, partition: str, nodes: int, samples: int) -> Holdings:
    """What a partition returned, as holdings; an InputError unless every node holds some of the samples that exist."""
    if isinstance(held, Holdings):
        return held
    name = Shown(partition)
    try:
        lists: list[NDArray[np.int64]] = [np.asarray(own) for own in held]
    except (TypeError, ValueError):
        problem, allowed = f"returned an object of type {type(held).__name__}", "it must be one array per node"
        raise InputError("partition", name, allowed, problem=problem) from None
    if len(lists) != nodes:
        raise InputError("partition", name, f"there must be {nodes}", problem=f"returned {len(lists)} nodes")
    for node, own in enumerate(lists):
        if own.ndim != 1 or (len(own) and own.dtype.kind not in "iu"):
            problem = f"gives node {node} an array of {own.dtype} of shape {own.shape}"
            raise InputError("partition", name, "it must hold the positions of its samples", problem=problem)
        if not len(own):
            problem = f"leaves node {node} without a sample"
            raise InputError("partition", name, "every node must hold at least one", problem=problem)
        if own.min() < 0 or own.max() >= samples:
            wrong = own[(own < 0) | (own >= samples)][0]
            allowed = f"it must be from 0 to {samples - 1}"
            raise InputError("partition", name, allowed, problem=f"gives node {node} the sample {wrong}")
    return listed(lists, samples)


def one_pile(cards: Positions, sizes: NDArray[np.int64]) -> Holdings:
    """Nodes of these sizes, one after another in a pile that is used up once."""
    ends = np.cumsum(sizes)
    bounds, piles = np.array([0, len(cards)]), np.zeros(len(sizes), dtype=np.int32)
    return Holdings(cards, bounds, piles, ends - sizes, sizes, np.arange(len(sizes) + 1))
