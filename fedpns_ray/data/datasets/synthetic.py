"""The paper's synthetic data (Section V): y = argmax(softmax(W x + b)), x normal, with a different mean on each node.

Sigma is diagonal with Sigma_rr = r^-1.2. On i.i.d. nodes x ~ N(0, Sigma); on a non-i.i.d. node i x ~ N(o_i, Sigma),
with the elements of o_i from N(B_i, 1) and B_i from N(0, varrho), where varrho is a variance.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.streams import stream
from fedpns_ray.data.interfaces import GeneratedDataset, Outline, Samples
from fedpns_ray.data.population import Population
from fedpns_ray.errors import InputError

FEATURES, CLASSES, TRAIN_SHARE = 60, 10, 0.8


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
        return synthetic(seed, sizes, self.iid_nodes(len(sizes)), self.varrho, self.labeller, self.test_nodes)

    def iid_nodes(self, nodes: int) -> int:
        return round(self.sigma * nodes)

    def outline(self) -> Outline:
        return Outline((FEATURES,), 0, CLASSES)


def synthetic(
    seed: int,
    sizes: NDArray[np.int64],
    iid_nodes: int,
    varrho: float,
    labeller: Literal["shared", "own"],
    test_nodes: Literal["iid", "all"],
) -> Population:
    """The synthetic population. `sizes` are before the 80 / 20 split; every node draws from its own stream."""
    if test_nodes == "iid" and iid_nodes == 0:
        problem = f"none of {len(sizes)} nodes is i.i.d., so test_nodes: iid leaves no test set"
        raise InputError("sigma", problem=problem, hint="raise sigma or use test_nodes: all")
    scale = np.sqrt(np.arange(1, FEATURES + 1) ** -1.2)
    shared = _labeller(stream(seed, "labeller"))
    cuts = np.maximum(1, np.rint(TRAIN_SHARE * sizes)).astype(np.int64)
    tested = np.where((np.arange(len(sizes)) < iid_nodes) | (test_nodes == "all"), sizes - cuts, 0)
    train, test = _Filling(int(cuts.sum())), _Filling(int(tested.sum()))  # a list of small arrays would take twice that
    for node, size in enumerate(sizes):
        rng = stream(seed, "synthetic node", node=node)
        iid = node < iid_nodes
        mean = np.zeros(FEATURES) if iid else rng.normal(rng.normal(0, np.sqrt(varrho)), 1, FEATURES)
        w, b = _labeller(rng) if labeller == "own" and not iid else shared
        x = mean + scale * rng.standard_normal((size, FEATURES))
        y = np.argmax(np.einsum("nd,cd->nc", x, w) + b, axis=1)
        shuffled = rng.permutation(size)
        train.add(x, y, np.sort(shuffled[: cuts[node]]))
        if tested[node]:
            test.add(x, y, np.sort(shuffled[cuts[node] :]))
    if not len(test.y):
        problem = f"nodes of {int(sizes.max())} samples leave none for the test set"
        raise InputError("samples_per_node", problem=problem, hint="raise it")
    samples = Samples(train.x, train.y, test.x, test.y)
    offsets = np.concatenate([[0], np.cumsum(cuts)])
    return Population(samples, np.arange(len(train.y)), offsets, np.arange(len(sizes)) < iid_nodes)


class _Filling:
    """Samples of many nodes, one node after another, in arrays that are made once."""

    def __init__(self, count: int) -> None:
        self.x, self.y = np.empty((count, FEATURES), dtype=np.float32), np.empty(count, dtype=np.int64)
        self._next = 0

    def add(self, x: NDArray[np.float64], y: NDArray[np.int64], some: NDArray[np.int64]) -> None:
        at = slice(self._next, self._next + len(some))
        self.x[at], self.y[at] = x[some], y[some]
        self._next = at.stop


def _labeller(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return rng.standard_normal((CLASSES, FEATURES)), rng.standard_normal(CLASSES)
