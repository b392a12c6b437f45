"""Deadlines: how long an answer may take before the process that owes it counts as hung.

A process that is frozen, or stuck in a mount or a driver, neither answers nor fails. So every answer has a deadline,
kept by another process: what misses it is killed and its work done again, to the same bits.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

PATIENCE = 60.0
"""Seconds that an answer may always take; a setting (`patience`)."""
FIRST = 5
"""The first answer may take this many times as long: processes start, import torch and build their data."""
SLOWER = 20
"""An answer may take this many times as long as the median of those before it."""
STOPPED_WITHIN = 4.0
"""Seconds for a round to end once a stop is asked for; then a run ends at its last checkpoint."""
REMEMBERED = 1000
"""Answers whose median counts."""


class Deadline:
    """For the answers of one run: the largest of the patience, 20 times the median so far, and simulated delays."""

    def __init__(self, patience: float = PATIENCE, delay: float = 0.0) -> None:
        """`delay`: seconds that an answer takes at least, because nodes are simulated to be slow."""
        self._patience, self._delay = patience, delay
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)

    def observe(self, seconds: float) -> None:
        """An answer took so long."""
        self._seconds.append(seconds)

    @property
    def limit(self) -> float:
        """Seconds that the next answer may take."""
        if not self._seconds:
            return FIRST * max(self._patience, self._delay)
        return max(self._patience, SLOWER * statistics.median(self._seconds), 2 * self._delay)


def simulated_delay(experiment: Experiment) -> float:
    """Seconds that slow nodes add to a round, at most: one worker may train all of them, one after another."""
    return experiment.slow_seconds * experiment.trained_per_round if experiment.slow_fraction else 0.0
