"""The paper's partition (Section V): some nodes are i.i.d., each of the others holds rho labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.data.holdings import Holdings, joined
from fedpns_ray.data.interfaces import Partition, Samples
from fedpns_ray.data.partitions.iid import iid
from fedpns_ray.data.partitions.pile import deal_labels, label_piles
from fedpns_ray.errors import InputError


class SigmaRhoPartition(Partition):
    """The paper's: a fraction sigma of the nodes is i.i.d.; each other node holds rho labels (Section V)."""

    name = "sigma-rho"
    bytes_per_sample = 0
    by_label = True
    sigma: float = Field(0.2, ge=0, le=1)
    """Fraction of nodes with i.i.d. data."""
    rho: int = Field(1, ge=1, le=100_000)
    """Labels on each other node."""

    def check(self, classes: int, samples_per_node: int) -> None:
        if self.rho > classes:
            raise InputError("rho", self.rho, f"it must be at most {classes}, the number of labels")
        if self.rho > samples_per_node:
            raise InputError("rho", self.rho, f"a node has {samples_per_node} samples (samples_per_node)")

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Holdings:
        return sigma_rho(rng, samples.train_y, samples.classes, sizes, self.iid_nodes(len(sizes)), self.rho)

    def iid_nodes(self, nodes: int) -> int:
        return round(self.sigma * nodes)


def sigma_rho(
    rng: np.random.Generator,
    labels: NDArray[np.int64],
    classes: int,
    sizes: NDArray[np.int64],
    iid_nodes: int,
    rho: int,
) -> Holdings:
    """The paper's partition: i.i.d. nodes first; each other node holds D_i / rho samples of each of rho labels."""
    first = iid(rng, labels, sizes[:iid_nodes]) if iid_nodes else None
    piles, sizes = label_piles(rng, labels, classes), sizes[iid_nodes:]
    others = deal_labels(piles, distinct_labels(rng, classes, rho, len(sizes)), equal_parts(sizes, rho))
    return joined(first, others) if first else others


def equal_parts(sizes: NDArray[np.int64], rho: int) -> NDArray[np.int64]:
    """D_i / rho for each of rho labels, one row per node; the first labels have one more, if need be."""
    found: NDArray[np.int64] = sizes[:, None] // rho + (np.arange(rho) < sizes[:, None] % rho)
    return found


def distinct_labels(rng: np.random.Generator, classes: int, rho: int, nodes: int) -> NDArray[np.int64]:
    """One row per node: what `rng.choice(classes, size=rho, replace=False)` draws for one node after another.

    numpy draws rho numbers by Floyd's algorithm, the k-th of them at most classes - rho + k, and shuffles them; here
    the steps are taken for all nodes at once, since a call for each of 100,000 nodes takes seconds.
    """
    if classes > 10_000:  # numpy may shuffle instead
        return np.array([rng.choice(classes, size=rho, replace=False) for _ in range(nodes)]).reshape(nodes, rho)
    bounds = [*range(classes - rho, classes), *range(rho - 1, 0, -1)]
    drawn = rng.integers(0, np.tile(bounds, (nodes, 1)), endpoint=True)
    chosen, rows = drawn[:, :rho].copy(), np.arange(nodes)
    for k in range(1, rho):
        repeated = (chosen[:, :k] == drawn[:, k : k + 1]).any(axis=1)
        chosen[repeated, k] = classes - rho + k
    for k in range(rho - 1, 0, -1):
        with_ = drawn[:, rho + rho - 1 - k]
        chosen[rows, with_], chosen[:, k] = chosen[:, k].copy(), chosen[rows, with_]
    return chosen
