"""What every availability is: a part that makes the timetable of a run.

The clock is the round. A timetable does not say whether a node is available but when it is next, so that a selection
can prefer who will be gone, or wait for who will be back. A drawn node stays for the round; leaving in the middle of it
is `drop_probability`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import Nodes, Part, Timetable
from fedpns_ray.core.streams import stream

__all__ = ["NEVER", "Availability", "CoupledAvailability", "Timetable"]

NEVER = np.iinfo(np.int64).max
"""The next round of a node that is not available any more."""

Labels = NDArray[np.int64] | None
"""The most frequent label on each node, where it is needed."""


class Availability(Part):
    """When nodes can be drawn. The part holds parameters only."""

    required: ClassVar[tuple[str, ...]] = ("timetable",)

    @property
    def needs_labels(self) -> bool:
        """Whether the timetable depends on the labels that nodes hold."""
        return False

    def timetable(self, nodes: Nodes, seed: int, labels: Labels) -> Timetable | None:
        """The timetable of a run; None if all nodes are always available."""
        raise NotImplementedError


class CoupledAvailability(Availability):
    """Nodes differ in when they are available; `coupling` declares what that goes with."""

    coupling: Literal["independent", "by-size", "by-label", "by-speed"] = "independent"
    """What availability goes with: nothing, data size, the most frequent label, or (with devices) speed."""

    @property
    def needs_labels(self) -> bool:
        return self.coupling == "by-label"

    def ranks(self, nodes: Nodes, seed: int, labels: Labels) -> NDArray[np.float64]:
        """Where each node stands between 0 and 1: at random, or from the lowest size, label or speed to the highest."""
        if self.coupling == "independent":
            return stream(seed, "availability of nodes").random(nodes.count)
        values: NDArray[np.float64] | NDArray[np.int64] | None = labels
        if self.coupling == "by-size":
            values = nodes.sizes
        elif self.coupling == "by-speed":
            values = nodes.needed_devices("coupling by-speed").speed
        assert values is not None
        different, at = np.unique(values, return_inverse=True)
        return at / (len(different) - 1) if len(different) > 1 else np.full(nodes.count, 0.5)
