"""1-bit SGD (Seide et al. 2014): the sign of every entry, and the error of the last round added to the next update."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.compression.interfaces import FLOAT, Compression, Tensors
from fedpns_ray.core.interfaces import Rows, Vector


class OneBitCompression(Compression):
    """The sign of every entry, with two values per column to read them as; the error is sent later (Seide 2014).

    With the node's update G and what it kept, D: a bit says whether an entry of G + D is at least 0; the values that
    the two bits stand for are the means of the column's entries of that sign, which makes the squared error least; and
    D <- G + D minus what the server reads.

    A column is what leads to one output: the entries of a tensor that share their first index in torch's order; a
    vector, such as a bias, is one column. Not taken over: AdaGrad on quantised gradients, and double buffering.
    """

    name = "one-bit"
    values_per: Literal["column", "tensor"] = "column"
    """Whether each column has values of its own, or each tensor."""

    @property
    def keeps(self) -> int:
        return 1

    def encode(self, update: Vector, kept: Rows, tensors: Tensors) -> tuple[bytes, Rows]:
        wanted = update + kept[0]
        columns = columns_of(tensors, self.values_per == "column")
        positive = wanted >= 0
        pairs, cells = 2 * columns + positive, 2 * _number(columns)
        counts = np.maximum(np.bincount(pairs, minlength=cells), 1)
        values = (np.bincount(pairs, weights=wanted, minlength=cells) / counts).astype("<f4")
        return np.packbits(positive).tobytes() + values.tobytes(), (wanted - values[pairs])[None]

    def decode(self, message: bytes, tensors: Tensors) -> Vector:
        columns = columns_of(tensors, self.values_per == "column")
        bits, size = np.frombuffer(message, dtype=np.uint8), _bytes_of_bits(len(columns))
        positive = np.unpackbits(bits[:size], count=len(columns))
        return np.frombuffer(message, dtype="<f4", offset=size)[2 * columns + positive]

    def expected_bytes(self, tensors: Tensors) -> int:
        columns = columns_of(tensors, self.values_per == "column")
        return _bytes_of_bits(len(columns)) + 2 * FLOAT * _number(columns)


@lru_cache(maxsize=4)
def columns_of(tensors: Tensors, single: bool) -> NDArray[np.int64]:
    """The number of the column, or of the tensor, that each entry belongs to."""
    sizes = [
        size
        for shape in tensors
        for size in ([math.prod(shape[1:])] * shape[0] if single and len(shape) > 1 else [math.prod(shape)])
    ]
    return np.repeat(np.arange(len(sizes)), sizes)


def _number(columns: NDArray[np.int64]) -> int:
    return int(columns[-1]) + 1 if len(columns) else 0


def _bytes_of_bits(count: int) -> int:
    return -(-count // 8)
