"""The device model: how fast a node computes, how fast it sends, and what its channel is like this round.

Off by default. A node trains its samples at `speed` and sends an update at its uplink, which a fading channel raises
and lowers from round to round. Downlinks are not modelled: a server sends to all at once. Everything comes from named
streams, so a round's channels are the same whoever asks, and in whatever order.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.streams import stream
from fedpns_ray.errors import InputError

Array = NDArray[np.float64]

DEEPEST_FADE = 0.1
"""The lowest power gain of a channel (-10 dB): a node in a deeper fade would never finish."""
PROBE_COST = 1 / 3
"""Seconds to compute a loss, as a part of the seconds to train on the same samples: the forward of three passes."""


@dataclass(frozen=True)
class Resources:
    """What every node needs this round, in seconds; and its channel."""

    train: Array
    """For all its local epochs."""
    upload: Array
    """For one update."""
    gain: Array
    """|h_i|^2, the power gain of its channel."""


@dataclass(frozen=True)
class Devices:
    """The machines of all nodes, and the work that a round gives them."""

    speed: Array
    """Samples trained a second."""
    uplink: Array
    """Bytes sent a second at power gain 1."""
    samples: Array
    """E D_i, samples that a node trains on in a round."""
    payload: int
    """Bytes of one update."""
    seed: int
    fading: bool = True

    def resources(self, round: int) -> Resources:
        """Rayleigh fading: |h|^2 is exponential with mean 1, and log2(1 + |h|^2) of the uplink is there this round."""
        gain = np.ones(len(self.speed))
        if self.fading:
            gain = np.maximum(stream(self.seed, "channel", round).exponential(size=len(self.speed)), DEEPEST_FADE)
        return Resources(self.samples / self.speed, self.payload / (self.uplink * np.log2(1 + gain)), gain)


def log_normal(seed: int, count: int, speed: float, uplink: float, spread: float) -> tuple[Array, Array]:
    """Speeds and uplinks around these medians; `spread` is the deviation of their logarithms."""
    draws = (stream(seed, purpose).standard_normal(count) for purpose in ("device speed", "device uplink"))
    fast, wide = (median * np.exp(spread * draw) for median, draw in zip((speed, uplink), draws, strict=True))
    return fast, wide


def from_file(path: Path, count: int) -> tuple[Array, Array]:
    """Speeds and uplinks from a CSV file with the columns node, speed and uplink, one row for every node."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        found = {int(row["node"]): (float(row["speed"]), float(row["uplink"])) for row in rows}
    except OSError as error:
        raise InputError(f"device_file: {path} cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, ValueError, UnicodeDecodeError):
        raise InputError(f"device_file: {path} is not allowed; it must have the columns node,speed,uplink") from None
    for node in range(count):
        if node not in found:
            raise InputError(f"device_file: {path} has no row for node {node}; there are {count} nodes")
        if not all(0 < value < float("inf") for value in found[node]):
            raise InputError(f"device_file: node {node} of {path} is not allowed; speed and uplink must be above 0")
    speed, uplink = np.array([found[node] for node in range(count)]).T
    return speed, uplink
