"""Every node draws from the whole data set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data.holdings import Holdings, dealt
from fedpns_ray.data.interfaces import Partition, Samples
from fedpns_ray.data.partitions.pile import refuse_too_many


class IidPartition(Partition):
    """Every node draws from the whole set: all nodes are i.i.d."""

    name = "iid"
    bytes_per_sample = 0

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Holdings:
        return iid(rng, samples.train_y, sizes)

    def iid_nodes(self, nodes: int) -> int:
        return nodes


def iid(rng: np.random.Generator, labels: NDArray[np.int64], sizes: NDArray[np.int64]) -> Holdings:
    """Every node draws from the whole set."""
    whole = rng.permutation(len(labels))
    refuse_too_many(int(sizes.max()), len(whole), "samples of the training set")
    return dealt([whole], np.zeros((len(sizes), 1), dtype=np.int64), sizes[:, None])
