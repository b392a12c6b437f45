"""A user-defined compression: eight bits per number, and what rounding loses is sent later.

    fedpns run --compression examples.own_compression:EightBits --set compression.feedback=false
    fedpns compare --strategies fedpns,fedavg --compression examples.own_compression:EightBits

A compression turns a node's update into bytes, which are what the records count, and bytes into what the server sees.
A node may keep vectors from one of its rounds to the next; they travel with the work and are in the checkpoint.
"""

import numpy as np

from fedpns_ray.core.compression import Compression


class EightBits(Compression):
    """Every number as one of 255 multiples of the largest one; the error is added to the node's next update."""

    name = "eight-bits"
    feedback: bool = True
    """Whether the error is kept."""

    @property
    def keeps(self):
        return int(self.feedback)

    def encode(self, update, kept, tensors):
        wanted = update + kept.sum(axis=0)
        unit = np.float32(np.abs(wanted).max() / 127 or 1)
        levels = np.rint(wanted / unit).astype(np.int8)
        return unit.tobytes() + levels.tobytes(), (wanted - unit * levels)[None][: self.keeps]

    def decode(self, message, tensors):
        return np.frombuffer(message[:4], np.float32) * np.frombuffer(message[4:], np.int8)

    def expected_bytes(self, tensors):
        return 4 + sum(map(int, map(np.prod, tensors)))
