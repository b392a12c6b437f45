"""Round, accuracy and seconds by phase as Ray metrics, for the dashboard and Prometheus.

Ray exports a gauge for two report intervals after it was set, 20 s by default: one that is set once per round vanishes
from the export in a long round, and a graph of it has gaps. So a thread sets the last values again and again.
"""

from __future__ import annotations

import threading
from functools import cache
from types import TracebackType

from ray.util.metrics import Gauge

from fedpns_ray.records.record import Record

SET_EVERY = 1.0
"""Seconds between two settings, below Ray's shortest report interval times two."""


class Gauges:
    """The gauges of one run or trial, exported within `with`."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._last: Record | None = None
        self._closed = threading.Event()

    def __enter__(self) -> Gauges:
        threading.Thread(target=self._repeat, name="fedpns gauges", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()

    def show(self, record: Record) -> None:
        """The values of a round, until those of the next one are shown."""
        self._last = record
        self._set(record)

    def _repeat(self) -> None:
        while not self._closed.wait(SET_EVERY):
            if self._last is not None:
                self._set(self._last)

    def _set(self, record: Record) -> None:
        round_, accuracy, seconds = _gauges()
        round_.set(record.round, {"run": self._run})
        if record.test_accuracy is not None:
            accuracy.set(record.test_accuracy, {"run": self._run})
        for phase, spent in record.seconds_by_phase.items():
            seconds.set(spent, {"run": self._run, "phase": phase})


@cache
def _gauges() -> tuple[Gauge, Gauge, Gauge]:
    """Once per process, which runs one trial after another."""
    return (
        Gauge("fedpns_round", "rounds done", ("run",)),
        Gauge("fedpns_test_accuracy", "accuracy on the test set", ("run",)),
        Gauge("fedpns_seconds", "seconds of a round, by phase", ("run", "phase")),
    )
