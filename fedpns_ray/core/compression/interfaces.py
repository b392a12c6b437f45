"""What every compression is: a part that turns a node's update into bytes, and bytes into what the server sees."""

from __future__ import annotations

import math
from typing import ClassVar

from fedpns_ray.core.interfaces import Part, Rows, Vector

Tensors = tuple[tuple[int, ...], ...]
"""The shapes of a model's parameters, in the order in which they follow one another in an update."""
FLOAT = 4
"""Bytes of a float32."""


class Compression(Part):
    """What a node sends of its update. What it costs is the length of the message, whatever a method promises.

    A node may keep vectors, as long as the parameters, from one of its rounds to the next: what it has not sent yet.
    They are zero at first, travel with the work and are part of the checkpoint. `encode` is called where nodes train,
    on a part without private state, once per node and round; a node that does not send keeps what it had.
    """

    qualified: ClassVar[bool] = True
    required: ClassVar[tuple[str, ...]] = ("encode", "decode")

    @property
    def keeps(self) -> int:
        """How many vectors a node keeps."""
        return 0

    def encode(self, update: Vector, kept: Rows, tensors: Tensors) -> tuple[bytes, Rows]:
        """The message, and what the node keeps once it is sent; `kept` is what it kept before, a row per vector."""
        raise NotImplementedError

    def decode(self, message: bytes, tensors: Tensors) -> Vector:
        """The update as the server reads it from the message."""
        raise NotImplementedError

    def expected_bytes(self, tensors: Tensors) -> int:
        """How long a message will be, for a device model that must know before anything is sent."""
        return FLOAT * sum(map(math.prod, tensors))
