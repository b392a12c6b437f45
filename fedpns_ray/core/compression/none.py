"""No compression: the update as it is."""

from __future__ import annotations

import numpy as np

from fedpns_ray.core.compression.interfaces import Compression, Tensors
from fedpns_ray.core.interfaces import Rows, Vector


class NoCompression(Compression):
    """Every number of the update, as 4 bytes."""

    name = "none"

    def encode(self, update: Vector, kept: Rows, tensors: Tensors) -> tuple[bytes, Rows]:
        return update.astype("<f4").tobytes(), kept

    def decode(self, message: bytes, tensors: Tensors) -> Vector:
        return np.frombuffer(message, dtype="<f4")
