"""The device model: how fast a node computes, how fast it sends, and what its channel is like this round.

Off by default. A node trains its samples at `speed` and sends an update at its uplink, which a fading channel raises
and lowers from round to round. Downlinks are not modelled: a server broadcasts. Everything comes from named
streams, so a round's channels do not depend on the process that asks for them, nor on the order of the rounds.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.atomic_file import read_whole
from fedpns_ray.core.local_steps import local_samples
from fedpns_ray.core.streams import stream
from fedpns_ray.errors import InputError

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

Array = NDArray[np.float64]

DEEPEST_FADE = 0.1
"""The lowest power gain of a channel (-10 dB): a node in a deeper fade would never finish."""
SLOWEST, FASTEST = 1e-6, 1e15
"""Of speeds and uplinks: beyond these, seconds are no longer numbers that can be added."""
PROBE_COST = 1 / 3
"""Time to compute a loss, as a fraction of the time to train on the same samples: the forward pass is one of three."""


@dataclass(frozen=True)
class Resources:
    """The seconds that every node needs this round, and its channel."""

    train: Array
    """Seconds to train for all its local epochs, or `max_steps` if they end first."""
    upload: Array
    """Seconds to send one update."""
    gain: Array
    """|h_i|^2, the power gain of its channel."""


@dataclass(frozen=True)
class Devices:
    """The machines of all nodes, and the work that a round gives them."""

    speed: Array
    """Samples trained on per second."""
    uplink: Array
    """Bytes sent per second at power gain 1."""
    samples: Array
    """Samples that a node trains on per round: E D_i, or fewer with `max_steps`."""
    payload: int
    """Bytes of one update."""
    seed: int
    fading: bool = True

    def resources(self, round: int) -> Resources:
        """What every node needs in a round.

        Under Rayleigh fading, |h|^2 is exponential with mean 1, and the rate is log2(1 + |h|^2) times the uplink.
        """
        gain = np.ones(len(self.speed))
        if self.fading:
            gain = np.maximum(stream(self.seed, "channel", round).exponential(size=len(self.speed)), DEEPEST_FADE)
        return Resources(self.samples / self.speed, self.payload / (self.uplink * np.log2(1 + gain)), gain)


def devices_of(experiment: Experiment, sizes: NDArray[np.int64], payload: int) -> Devices | None:
    """The device model for nodes of these sizes that send updates of `payload` bytes; None if it is off."""
    e = experiment
    if e.devices == "off":
        return None
    if e.devices == "file":
        speed, uplink = from_file(Path(e.device_file), e.nodes)
    else:
        speed, uplink = log_normal(e.seed, e.nodes, e.device_speed, e.device_uplink, e.device_spread)
    fading = e.device_fading == "rayleigh"
    return Devices(speed, uplink, local_samples(e, sizes).astype(np.float64), payload, e.seed, fading)


def log_normal(seed: int, count: int, speed: float, uplink: float, spread: float) -> tuple[Array, Array]:
    """Speeds and uplinks around these medians; `spread` is the standard deviation of their logarithms."""
    draws = (stream(seed, purpose).standard_normal(count) for purpose in ("device speed", "device uplink"))
    fast, wide = (median * np.exp(spread * draw) for median, draw in zip((speed, uplink), draws, strict=True))
    return fast, wide


def from_file(path: Path, count: int) -> tuple[Array, Array]:
    """Speeds and uplinks from a CSV file with the columns node, speed and uplink, one row per node."""
    try:
        content = read_whole(path)
        if content is None:
            raise InputError("device_file", path, problem="cannot be read (No such file or directory)")
        rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
        found = {int(row["node"]): (float(row["speed"]), float(row["uplink"])) for row in rows}
    except OSError as error:
        raise InputError("device_file", path, problem=f"cannot be read ({error.strerror})") from None
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, csv.Error):
        raise InputError("device_file", path, "it must have the columns node,speed,uplink") from None
    for node in range(count):
        if node not in found:
            raise InputError("device_file", path, f"there are {count} nodes", problem=f"has no row for node {node}")
        if not all(SLOWEST <= value <= FASTEST for value in found[node]):
            problem = "gives node {} the speed {:g} and the uplink {:g}".format(node, *found[node])
            raise InputError("device_file", path, f"both must be between {SLOWEST:g} and {FASTEST:g}", problem=problem)
    speed, uplink = np.array([found[node] for node in range(count)]).T
    return speed, uplink
