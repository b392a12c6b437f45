"""A population: what every node holds, and how far its labels are from the population's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.spacing import evenly_spaced
from fedpns_ray.data.holdings import Holdings, Positions, listed
from fedpns_ray.data.interfaces import Features, Samples

Own = tuple[Features, NDArray[Any]]
"""The features and labels of a node's training samples."""
MOST_DESCRIBED = 1_000
"""The most nodes whose labels describe a population that is generated."""


@dataclass(frozen=True)
class Population:
    """What every node holds. A node costs a few bytes until it trains: its samples are fetched by `own`."""

    samples: Samples
    """What all nodes share: the test set, and the training set that nodes hold positions of, if there is one."""
    iid: NDArray[np.bool_]
    """Which nodes hold i.i.d. data."""

    def own(self, node: int) -> Own:
        """A node's training samples."""
        raise NotImplementedError

    def positions(self, node: int) -> Positions | None:
        """Where in the training set a node's samples are; None if they are not there as the node has them."""
        return None

    @property
    def sizes(self) -> NDArray[np.int64]:
        """D_i."""
        raise NotImplementedError

    @property
    def sha256(self) -> str:
        """The digest of the data: equal digests mean equal data on every node."""
        raise NotImplementedError

    @property
    def distinct(self) -> int:
        """How many different training samples there are."""
        return int(self.sizes.sum())

    @property
    def count(self) -> int:
        return len(self.iid)

    def pooled(self, size: int) -> Iterator[Own]:
        """The training samples of all nodes, node after node, `size` at a time."""
        x, y = self.own(0)
        for node in range(1, self.count + 1):
            while len(y) >= size:
                yield x[:size], y[:size]
                x, y = x[size:], y[size:]
            if node < self.count:
                more_x, more_y = self.own(node)
                x, y = np.concatenate([x, more_x]), np.concatenate([y, more_y])
        if len(y):
            yield x, y

    # --- statistics ---------------------------------------------------------------------------------------------

    @property
    def described(self) -> NDArray[np.int64]:
        """The nodes that statistics describe: all of them, or evenly spaced ones where that would be too many."""
        return np.arange(self.count)

    @cached_property
    def histogram(self) -> NDArray[np.int64]:
        """The number of samples of each label on each described node."""
        classes, labels = self.samples.classes, self.samples.labels_of
        return np.array([np.bincount(labels(self.own(int(node))[1]), minlength=classes) for node in self.described])

    @cached_property
    def q_dif(self) -> NDArray[np.float64]:
        """That of each described node."""
        return q_dif(self.histogram)

    @cached_property
    def hellinger(self) -> NDArray[np.float64]:
        """The Hellinger distance of a described node's label distribution from the population's: 0 to 1."""
        q = self.histogram.sum(axis=0) / self.histogram.sum()
        p = self.histogram / self.sizes[self.described, None]
        return np.sqrt(np.square(np.sqrt(p) - np.sqrt(q)).sum(axis=1) / 2)

    def summary(self) -> dict[str, Any]:
        iid, labelled = self.iid[self.described], self.samples.task != "regression"
        groups = (self.q_dif[iid], self.q_dif[~iid])
        q_dif = [round(float(q.mean()), 4) if len(q) and labelled else None for q in groups]
        found = {
            "sha256": self.sha256,
            "nodes": self.count,
            "iid_nodes": int(self.iid.sum()),
            "samples": int(self.sizes.sum()),
            "distinct_samples": self.distinct,
            "q_dif_iid": q_dif[0],
            "q_dif_other": q_dif[1],
            "hellinger": round(float(self.hellinger.mean()), 4) if labelled else None,
        }
        return found if len(iid) == self.count else found | {"described_nodes": len(iid)}


@dataclass(frozen=True)
class HeldPopulation(Population):
    """Nodes that hold samples of a training set: a node costs where they are, not a copy of them."""

    held: Holdings

    def own(self, node: int) -> Own:
        at = self.held_by(node)
        return self.samples.train_x[at], self.samples.train_y[at]

    def held_by(self, node: int) -> Positions:
        return self.held[node]

    def positions(self, node: int) -> Positions:
        return self.held[node]

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.held.sizes

    @property
    def indices(self) -> Positions:
        """Positions in the training set, node after node; made anew each time."""
        return self.held.of(0, self.count)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Node i holds indices[offsets[i] : offsets[i + 1]]."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def histogram(self) -> NDArray[np.int64]:
        classes, labels = self.samples.classes, self.samples.labels
        found = np.empty((self.count, classes), dtype=np.int64)
        for first, last, at in self.held.chunks():
            owner = np.repeat(np.arange(last - first), self.sizes[first:last])
            counts = np.bincount(owner * classes + labels[at], minlength=(last - first) * classes)
            found[first:last] = counts.reshape(-1, classes)
        return found

    @property
    def distinct(self) -> int:
        seen = np.zeros(len(self.samples.train_y), dtype=bool)
        for _, _, at in self.held.chunks():
            seen[at] = True
        return int(seen.sum())

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for _, _, at in self.held.chunks():
            digest.update(np.ascontiguousarray(at, dtype=np.int64).data)
        s = self.samples
        for array in (self.offsets, self.iid, s.train_x, s.train_y, s.test_x, s.test_y):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class GeneratedPopulation(Population):
    """Nodes whose samples are generated when they are asked for, each from its own stream.

    Its digest is that of its recipe. Its statistics come from at most 1,000 nodes, evenly spaced.
    """

    recipe: Recipe

    def own(self, node: int) -> Own:
        return self.recipe.train(node)

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.recipe.train_sizes

    @property
    def described(self) -> NDArray[np.int64]:
        return evenly_spaced(self.count, MOST_DESCRIBED)

    @property
    def sha256(self) -> str:
        return self.recipe.sha256


class Recipe:
    """How the nodes of a generated population are made; a pure function of the node."""

    def train(self, node: int) -> Own:
        """A node's training samples."""
        raise NotImplementedError

    @property
    def train_sizes(self) -> NDArray[np.int64]:
        """D_i."""
        raise NotImplementedError

    @property
    def sha256(self) -> str:
        """The digest of all that decides what nodes hold, with a version that changes with the code that makes it."""
        raise NotImplementedError


def q_dif(histogram: NDArray[np.int64]) -> NDArray[np.float64]:
    """Theorem 1: the L1 distance of a node's label distribution from the population's, for each row."""
    q = histogram.sum(axis=0) / histogram.sum()
    return np.abs(histogram / histogram.sum(axis=1, keepdims=True) - q).sum(axis=1)


def from_lists(samples: Samples, held: Sequence[Positions], iid: NDArray[np.bool_]) -> HeldPopulation:
    holdings = held if isinstance(held, Holdings) else listed(held, len(samples.train_y))
    return HeldPopulation(samples, iid, holdings)
