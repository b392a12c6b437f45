"""Shards of the label-sorted data set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.data.interfaces import Held, Partition, Samples
from fedpns_ray.data.partitions.pile import refuse_too_many
from fedpns_ray.errors import InputError


class ShardsPartition(Partition):
    """The label-sorted set is cut into shards; every node holds a few of them, at random (McMahan et al. 2017)."""

    name = "shards"
    by_label = True
    shards_per_node: int = Field(2, gt=0, le=100_000)
    """Pieces of the label-sorted data set on each node."""

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Held:
        return shards(rng, samples.train_y, sizes, self.shards_per_node)


def shards(rng: np.random.Generator, labels: NDArray[np.int64], sizes: NDArray[np.int64], shards_per_node: int) -> Held:
    """McMahan et al. 2017: the label-sorted set is cut into shards; every node holds a few of them, at random."""
    by_label = np.argsort(labels, kind="stable")
    pieces = len(sizes) * shards_per_node
    if pieces > len(labels):
        allowed = f"{len(sizes)} nodes would cut {len(labels)} samples into {pieces} shards"
        raise InputError("shards_per_node", shards_per_node, allowed)
    cut = np.array_split(by_label, pieces)
    order = rng.permutation(pieces)
    held = []
    for node, size in enumerate(sizes):
        mine = [cut[k] for k in order[node * shards_per_node : (node + 1) * shards_per_node]]
        parts = [len(part) for part in np.array_split(np.arange(size), shards_per_node)]
        for piece, part in zip(mine, parts, strict=True):
            refuse_too_many(part, len(piece), "samples of a shard")
        held.append(np.concatenate([rng.permutation(piece)[:part] for piece, part in zip(mine, parts, strict=True)]))
    return held
