"""Nodes that are available at their own time of the day."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.availability.interfaces import CoupledAvailability, Labels
from fedpns_ray.core.interfaces import Nodes


class Diurnal(CoupledAvailability):
    """A node is available for the same hours of every day; `coupling` decides which hours."""

    name = "diurnal"
    day: int = Field(24, ge=1, le=1_000_000)
    """Rounds in a day."""
    online_share: float = Field(0.5, gt=0, le=1)
    """The share of a day for which a node is available, at least one round."""

    def timetable(self, nodes: Nodes, seed: int, labels: Labels) -> DiurnalTimetable:
        start = np.floor(self.ranks(nodes, seed, labels) * self.day).astype(np.int64) % self.day
        return DiurnalTimetable(start, self.day, max(1, math.floor(self.online_share * self.day + 1e-9)))


class DiurnalTimetable:
    """Node i is available in the `length` rounds from start_i + 1 on, every day; round 1 is the first of day 1."""

    def __init__(self, start: NDArray[np.int64], day: int, length: int) -> None:
        self._start, self._day, self._length = start, day, length

    def next_rounds(self, round: int) -> NDArray[np.int64]:
        """The first round from this one on in which each node is available."""
        since = (round - 1 - self._start) % self._day
        return np.where(since < self._length, round, round + self._day - since)
