"""The partition that comes with the data: every sample has an owner."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data.interfaces import Held, Partition, Samples
from fedpns_ray.errors import InputError


class NaturalPartition(Partition):
    """The data set's own: a writer, a speaking role, or what generated data were made for."""

    name = "natural"
    natural = True

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Held:
        if samples.train_node is None:
            raise InputError("partition", "natural", "the samples of this data set have no owners")
        by_owner = np.argsort(samples.train_node, kind="stable")
        counts = np.bincount(samples.train_node)
        owners = np.flatnonzero(counts)
        if len(sizes) > len(owners):
            raise InputError("nodes", len(sizes), f"the data set has {len(owners)} owners")
        ends = np.cumsum(counts)
        chosen = np.sort(rng.choice(owners, size=len(sizes), replace=False))
        return [by_owner[ends[owner] - counts[owner] : ends[owner]] for owner in chosen]
