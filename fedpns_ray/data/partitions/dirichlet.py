"""Label distributions from a Dirichlet distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.data.interfaces import Held, Partition, Samples
from fedpns_ray.data.partitions.pile import label_piles, refuse_too_many


class DirichletPartition(Partition):
    """Every node's label distribution is drawn from a symmetric Dirichlet distribution (Hsu et al. 2019)."""

    name = "dirichlet"
    by_label = True
    concentration: float = Field(0.5, ge=1e-6, le=1e9)
    """Small is skewed, large is even."""

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Held:
        return dirichlet(rng, samples.train_y, samples.classes, sizes, self.concentration)


def dirichlet(
    rng: np.random.Generator, labels: NDArray[np.int64], classes: int, sizes: NDArray[np.int64], concentration: float
) -> Held:
    """Every node's label distribution is drawn from a symmetric Dirichlet distribution (Hsu et al. 2019)."""
    piles = label_piles(rng, labels, classes)
    held = []
    for size in sizes:
        counts = rng.multinomial(int(size), rng.dirichlet(np.full(classes, concentration)))
        for label, count in enumerate(counts):
            refuse_too_many(int(count), len(piles[label]), f"samples of label {label}")
        held.append(np.concatenate([piles[label].take(int(count)) for label, count in enumerate(counts)]))
    return held
