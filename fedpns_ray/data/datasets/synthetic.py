"""The paper's synthetic data (Section V): y = argmax(softmax(W x + b)), x normal, with a different mean on each node.

Sigma is diagonal with Sigma_rr = r^-1.2. On i.i.d. nodes x ~ N(0, Sigma); on a non-i.i.d. node i x ~ N(o_i, Sigma),
with the elements of o_i from N(B_i, 1) and B_i from N(0, varrho), where varrho is a variance.

Up to 1,000 nodes are made at once. More are made when they are drawn, to the same samples; their test set is then at
most 10,000 samples (with test_nodes: iid, of the first i.i.d. nodes; with all, of evenly spaced ones).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.spacing import evenly_spaced
from fedpns_ray.core.streams import stream
from fedpns_ray.data.holdings import one_pile
from fedpns_ray.data.interfaces import MOST_HELD, Features, GeneratedDataset, Outline, Samples
from fedpns_ray.data.population import GeneratedPopulation, HeldPopulation, Own, Population, Recipe
from fedpns_ray.errors import InputError

FEATURES, CLASSES, TRAIN_SHARE = 60, 10, 0.8
SCALE = np.sqrt(np.arange(1, FEATURES + 1) ** -1.2)
MOST_TESTED = 10_000
"""The most samples in the test set of a population that is not made at once."""
VERSION = 1
"""Of the recipe: raised whenever the same settings give other samples."""


class SyntheticDataset(GeneratedDataset):
    """The paper's: 60 normal features whose means differ from node to node, labelled by a linear model (Section V)."""

    name = "synthetic"
    defaults: ClassVar[dict[str, Any]] = {
        "model": "mlr",
        "partition": "natural",
        "samples_per_node": 1000,
        "epochs": 20,
    }
    sigma: float = Field(0.2, ge=0, le=1)
    """Fraction of nodes with i.i.d. data."""
    varrho: float = Field(1.0, ge=0, le=1e6)
    """Variance of the means of the non-i.i.d. nodes' features."""
    labeller: Literal["shared", "own"] = "shared"
    """One labeller for all nodes, or one for each non-i.i.d. node (the released code)."""
    test_nodes: Literal["iid", "all"] = "iid"
    """Whose 20 % make up the test set."""

    def population(self, seed: int, sizes: NDArray[np.int64]) -> Population:
        iid = self.iid_nodes(len(sizes))
        return synthetic(SyntheticNodes(seed, sizes, iid, self.varrho, self.labeller, self.test_nodes))

    def iid_nodes(self, nodes: int) -> int:
        return round(self.sigma * nodes)

    def outline(self) -> Outline:
        return Outline((FEATURES,), MOST_TESTED, CLASSES)


@dataclass(frozen=True)
class SyntheticNodes(Recipe):
    """How synthetic nodes are made: every node draws from its own stream, whatever the others do."""

    seed: int
    sizes: NDArray[np.int64]
    """Before the 80 / 20 split."""
    iid_nodes: int
    varrho: float
    labeller: Literal["shared", "own"]
    test_nodes: Literal["iid", "all"]

    @cached_property
    def train_sizes(self) -> NDArray[np.int64]:
        return np.maximum(1, np.rint(TRAIN_SHARE * self.sizes)).astype(np.int64)

    @cached_property
    def test_sizes(self) -> NDArray[np.int64]:
        """What each node gives to the test set."""
        tested = (np.arange(len(self.sizes)) < self.iid_nodes) | (self.test_nodes == "all")
        return np.where(tested, self.sizes - self.train_sizes, 0)

    @cached_property
    def _shared(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return _labeller(stream(self.seed, "labeller"))

    def node(self, node: int) -> tuple[Own, Own]:
        """A node's training samples, and those that it gives to the test set."""
        rng, size, iid = stream(self.seed, "synthetic node", node=node), int(self.sizes[node]), node < self.iid_nodes
        mean = np.zeros(FEATURES) if iid else rng.normal(rng.normal(0, np.sqrt(self.varrho)), 1, FEATURES)
        w, b = _labeller(rng) if self.labeller == "own" and not iid else self._shared
        x = mean + SCALE * rng.standard_normal((size, FEATURES))
        y = np.argmax(np.einsum("nd,cd->nc", x, w) + b, axis=1)
        shuffled, cut = rng.permutation(size), self.train_sizes[node]
        train, test = np.sort(shuffled[:cut]), np.sort(shuffled[cut : cut + self.test_sizes[node]])
        return (x[train].astype(np.float32), y[train]), (x[test].astype(np.float32), y[test])

    def train(self, node: int) -> Own:
        return self.node(node)[0]

    @property
    def sha256(self) -> str:
        settings = ("synthetic", VERSION, self.seed, self.iid_nodes, self.varrho, self.labeller, self.test_nodes)
        return hashlib.sha256(json.dumps(settings).encode() + self.sizes.tobytes()).hexdigest()


def synthetic(nodes: SyntheticNodes) -> Population:
    """The synthetic population: all of it, or, above 1,000 nodes, what is needed of it when it is needed."""
    count, iid = len(nodes.sizes), np.arange(len(nodes.sizes)) < nodes.iid_nodes
    if nodes.test_nodes == "iid" and nodes.iid_nodes == 0:
        problem = f"none of {count} nodes is i.i.d., so test_nodes: iid leaves no test set"
        raise InputError("sigma", problem=problem, hint="raise sigma or use test_nodes: all")
    if not nodes.test_sizes.any():
        problem = f"nodes of {int(nodes.sizes.max())} samples leave none for the test set"
        raise InputError("samples_per_node", problem=problem, hint="raise it")
    if count > MOST_HELD:
        none = np.empty((0, FEATURES), dtype=np.float32), np.empty(0, dtype=np.int64)
        return GeneratedPopulation(Samples(*none, *_bounded_test_set(nodes)), iid, nodes)
    train, test = _Filling(int(nodes.train_sizes.sum())), _Filling(int(nodes.test_sizes.sum()))
    for node in range(count):
        own, tested = nodes.node(node)
        train.add(*own)
        test.add(*tested)
    samples = Samples(train.x, train.y, test.x, test.y)
    return HeldPopulation(samples, iid, one_pile(np.arange(len(train.y)), nodes.train_sizes))


def _bounded_test_set(nodes: SyntheticNodes) -> Own:
    """At most 10,000 samples: of the first i.i.d. nodes, or of as many evenly spaced ones as are needed for them."""
    giving = np.flatnonzero(nodes.test_sizes)
    if nodes.test_nodes == "all":
        needed = int(np.ceil(MOST_TESTED / nodes.test_sizes[giving].mean()))
        giving = giving[evenly_spaced(len(giving), needed)]
    found = 0
    tests = []
    for node in giving:
        if found >= MOST_TESTED:
            break
        tests.append(nodes.node(int(node))[1])
        found += len(tests[-1][1])
    x, y = (np.concatenate(parts)[:MOST_TESTED] for parts in zip(*tests, strict=True))
    return x, y


class _Filling:
    """Samples of many nodes, one node after another, in arrays that are made once."""

    def __init__(self, count: int) -> None:
        self.x, self.y = np.empty((count, FEATURES), dtype=np.float32), np.empty(count, dtype=np.int64)
        self._next = 0

    def add(self, x: Features, y: NDArray[np.int64]) -> None:
        at = slice(self._next, self._next + len(y))
        self.x[at], self.y[at] = x, y
        self._next = at.stop


def _labeller(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return rng.standard_normal((CLASSES, FEATURES)), rng.standard_normal(CLASSES)
