"""The paper's partition (Section V): some nodes are i.i.d., each of the others holds rho labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.data.interfaces import Held, Partition, Samples
from fedpns_ray.data.partitions.iid import iid
from fedpns_ray.data.partitions.pile import label_piles, refuse_too_many
from fedpns_ray.errors import InputError


class SigmaRhoPartition(Partition):
    """The paper's: a fraction sigma of the nodes is i.i.d.; each other node holds rho labels (Section V)."""

    name = "sigma-rho"
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

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Held:
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
) -> Held:
    """The paper's partition: i.i.d. nodes first; each other node holds D_i / rho samples of each of rho labels."""
    held = iid(rng, labels, sizes[:iid_nodes]) if iid_nodes else []
    piles = label_piles(rng, labels, classes)
    for size in sizes[iid_nodes:]:
        chosen = rng.choice(classes, size=rho, replace=False)
        parts = [len(part) for part in np.array_split(np.arange(size), rho)]
        for label, part in zip(chosen, parts, strict=True):
            refuse_too_many(part, len(piles[label]), f"samples of label {label}")
        held.append(np.concatenate([piles[label].take(part) for label, part in zip(chosen, parts, strict=True)]))
    return held
