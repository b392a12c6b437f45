"""The paper's synthetic data (Section V): y = argmax(softmax(W x + b)), x normal, the mean of x a node's own.

Sigma is diagonal with Sigma_rr = r^-1.2. On i.i.d. nodes x ~ N(0, Sigma); on non-i.i.d. node i x ~ N(o_i, Sigma) with the
elements of o_i from N(B_i, 1) and B_i from N(0, varrho), a variance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data.population import Population
from fedpns_ray.data.sources import Samples
from fedpns_ray.errors import InputError

FEATURES, CLASSES, TRAIN_SHARE = 60, 10, 0.8


def synthetic(
    node_stream: Callable[[int], np.random.Generator],
    labeller_stream: np.random.Generator,
    sizes: NDArray[np.int64],
    iid_nodes: int,
    varrho: float,
    labeller: Literal["shared", "own"],
    test_nodes: Literal["iid", "all"],
) -> Population:
    """`sizes` counts a node's samples before its 80 / 20 split; every node draws from a stream of its own."""
    if test_nodes == "iid" and iid_nodes == 0:
        raise InputError(
            f"sigma: none of {len(sizes)} nodes is i.i.d., so test_nodes: iid leaves no test set; raise sigma or use test_nodes: all"
        )
    deviation = np.sqrt(np.arange(1, FEATURES + 1) ** -1.2)
    shared = _labeller(labeller_stream)
    features, labels, train_sizes, train, test = [], [], [], [], []
    start = 0
    for node, size in enumerate(sizes):
        rng = node_stream(node)
        iid = node < iid_nodes
        mean = np.zeros(FEATURES) if iid else rng.normal(rng.normal(0, np.sqrt(varrho)), 1, FEATURES)
        w, b = _labeller(rng) if labeller == "own" and not iid else shared
        x = mean + deviation * rng.standard_normal((size, FEATURES))
        features.append(x.astype(np.float32))
        labels.append(np.argmax(np.einsum("nd,cd->nc", x, w) + b, axis=1))
        shuffled = start + rng.permutation(size)
        cut = max(1, round(TRAIN_SHARE * size))
        train.append(np.sort(shuffled[:cut]))
        train_sizes.append(cut)
        if iid or test_nodes == "all":
            test.append(np.sort(shuffled[cut:]))
        start += size
    x, y = np.concatenate(features), np.concatenate(labels).astype(np.int64)
    held, tested = np.concatenate(train), np.concatenate(test)
    if not len(tested):
        raise InputError(f"samples_per_node: nodes of {int(sizes.max())} samples leave none for the test set; raise it")
    samples = Samples(x[held], y[held], x[tested], y[tested])
    offsets = np.concatenate([[0], np.cumsum(train_sizes)])
    return Population(samples, np.arange(len(held)), offsets, np.arange(len(sizes)) < iid_nodes)


def _labeller(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return rng.standard_normal((CLASSES, FEATURES)), rng.standard_normal(CLASSES)
