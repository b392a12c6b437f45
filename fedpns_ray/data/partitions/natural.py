"""The partition that comes with the data: every sample has an owner."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.data.interfaces import Held, Partition, Samples
from fedpns_ray.errors import InputError


class NaturalPartition(Partition):
    """The data set's own: a writer, a speaking role, or what generated data were made for."""

    name = "natural"
    natural = True
    min_samples: int = Field(2, ge=1, le=10_000_000)
    """Owners with fewer samples are left out."""

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Held:
        """Owners are drawn by the seed and keep their order; each node holds all samples of its owner."""
        if samples.train_node is None:
            raise InputError("partition", "natural", "the samples of this data set have no owners")
        by_owner = np.argsort(samples.train_node, kind="stable")
        counts = np.bincount(samples.train_node)
        owners = np.flatnonzero(counts >= self.min_samples)
        if len(sizes) > len(owners):
            allowed = f"the data set has {len(owners)} owners with at least {self.min_samples} samples (min_samples)"
            raise InputError("nodes", len(sizes), allowed)
        ends = np.cumsum(counts)
        chosen = np.sort(rng.choice(owners, size=len(sizes), replace=False))
        return [by_owner[ends[owner] - counts[owner] : ends[owner]] for owner in chosen]
