"""Label distributions from a Dirichlet distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.data.holdings import Holdings
from fedpns_ray.data.interfaces import Partition, Samples
from fedpns_ray.data.partitions.pile import deal_labels, label_piles


class DirichletPartition(Partition):
    """Every node's label distribution is drawn from a symmetric Dirichlet distribution (Hsu et al. 2019)."""

    name = "dirichlet"
    bytes_per_sample = 0
    by_label = True
    concentration: float = Field(0.5, ge=1e-6, le=1e9)
    """Small is skewed, large is even."""

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Holdings:
        return dirichlet(rng, samples.train_y, samples.classes, sizes, self.concentration)


def dirichlet(
    rng: np.random.Generator, labels: NDArray[np.int64], classes: int, sizes: NDArray[np.int64], concentration: float
) -> Holdings:
    """Every node's label distribution is drawn from a symmetric Dirichlet distribution (Hsu et al. 2019)."""
    piles = label_piles(rng, labels, classes)
    counts = label_counts(rng, classes, sizes, concentration)
    return deal_labels(piles, np.tile(np.arange(classes), (len(sizes), 1)), counts)


def label_counts(
    rng: np.random.Generator, classes: int, sizes: NDArray[np.int64], concentration: float
) -> NDArray[np.int64]:
    """How many samples of each label each node holds: one row per node."""
    even = np.full(classes, concentration)
    found = [rng.multinomial(size, rng.dirichlet(even)) for size in sizes.tolist()]
    return np.array(found, dtype=np.int64).reshape(len(sizes), classes)
