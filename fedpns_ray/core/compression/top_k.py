"""Deep gradient compression (Lin et al. 2018): the largest entries are sent, the rest is added up until it is large."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.compression.interfaces import FLOAT, Compression, Tensors
from fedpns_ray.core.interfaces import Rows, Vector

POSITION = np.dtype("<u4")
"""Where an entry stands in the update, in a message."""


class TopKCompression(Compression):
    """Of each tensor, the entries of largest magnitude; the rest is kept and added up (Lin 2018).

    With the node's update as its gradient g: u <- m u + g and v <- v + u (momentum correction, its Section 3.2); sent
    are the largest entries of v in each tensor, and there v <- 0 and u <- 0 (momentum factor masking, Section 3.3).
    With m = 0 this is plain error feedback: its Algorithm 1.

    Not taken over: the warm-up, in which its sparsity grows from 75 % to 99.9 % over four epochs; its clipping of
    local gradients is that of `optimizer sgd` (`clip_gradient`). A round counts only for nodes that send in it.
    """

    name = "top-k"
    ratio: float = Field(0.01, gt=0, le=1)
    """The fraction of each tensor's entries that is sent, at least one (the source sends 0.001)."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """m of the momentum correction, from 0 (none) to below 1; it takes the place of momentum at the server."""

    @property
    def keeps(self) -> int:
        return 2 if self.momentum else 1

    def encode(self, update: Vector, kept: Rows, tensors: Tensors) -> tuple[bytes, Rows]:
        velocity = kept[1] * np.float32(self.momentum) + update if self.momentum else update
        added_up = kept[0] + velocity
        at = largest(added_up, tensors, self.ratio)
        message = at.astype(POSITION).tobytes() + added_up[at].astype("<f4").tobytes()
        rows = np.stack([added_up, velocity][: self.keeps])
        rows[:, at] = 0
        return message, rows

    def decode(self, message: bytes, tensors: Tensors) -> Vector:
        count = len(message) // (POSITION.itemsize + FLOAT)
        at = np.frombuffer(message, dtype=POSITION, count=count)
        found = np.zeros(sum(map(math.prod, tensors)), dtype=np.float32)
        found[at] = np.frombuffer(message, dtype="<f4", offset=at.nbytes)
        return found

    def expected_bytes(self, tensors: Tensors) -> int:
        return (POSITION.itemsize + FLOAT) * sum(_count(math.prod(shape), self.ratio) for shape in tensors)


def largest(vector: Vector, tensors: Tensors, ratio: float) -> NDArray[np.int64]:
    """Where the entries of largest magnitude stand, in their order; of equal ones, the first.

    The limit is a value, found by partition, and does not depend on how a machine orders equal entries.
    """
    found, start = [], 0
    for shape in tensors:
        size = math.prod(shape)
        magnitude, count = np.abs(vector[start : start + size]), _count(size, ratio)
        limit = np.partition(magnitude, size - count)[size - count] if size else 0
        above, equal = np.flatnonzero(magnitude > limit), np.flatnonzero(magnitude == limit)
        found.append(start + np.sort(np.concatenate([above, equal[: count - len(above)]])))
        start += size
    return np.concatenate(found)


def _count(size: int, ratio: float) -> int:
    return min(size, max(1, round(ratio * size)))
