"""Availability that was observed: a file of intervals."""

from __future__ import annotations

import csv
import io
from bisect import bisect_right
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fedpns_ray.atomic_file import read_whole
from fedpns_ray.core.availability.interfaces import NEVER, Availability, Labels
from fedpns_ray.core.interfaces import Nodes
from fedpns_ray.errors import InputError

LAST = 10**9
"""The latest round that counts: more than any run has."""

Intervals = list[list[tuple[int, int]]]
"""Of every node: the rounds from which, and before which, it is available; in order, and apart from each other."""


class Trace(Availability):
    """Availability from a file with the columns node, from and until: rounds, the last one exclusive."""

    name = "trace"
    trace_file: str = ""
    """A CSV file with the columns node, from and until; a node without a row is never available."""
    trace_period: int = Field(0, ge=0, le=LAST)
    """Rounds after which the trace begins again; 0: never."""

    @field_validator("trace_file")
    @classmethod
    def _whole_path(cls, path: str) -> str:
        """The absolute path, since each trial of a study runs in its own folder."""
        return path and str(Path(path).absolute())

    def timetable(self, nodes: Nodes, seed: int, labels: Labels) -> TraceTimetable:
        if not self.trace_file:
            needed = "availability trace needs a CSV file with the columns node,from,until"
            raise InputError("trace_file", allowed=needed, problem="is missing")
        return TraceTimetable(read(Path(self.trace_file), nodes.count, self.trace_period), self.trace_period)


class TraceTimetable:
    """The intervals of every node, once or again and again."""

    def __init__(self, intervals: Intervals, period: int) -> None:
        self._intervals, self._period = intervals, period

    def next_rounds(self, round: int) -> NDArray[np.int64]:
        """The first round from this one on in which each node is available; NEVER if there is none."""
        passed = (round - 1) // self._period * self._period if self._period else 0
        found = np.array([_next(own, round - passed, self._period) for own in self._intervals], dtype=np.int64)
        return np.where(found < NEVER, found + passed, found)


def _next(own: list[tuple[int, int]], round: int, period: int) -> int:
    if not own:
        return NEVER
    at = bisect_right(own, (round, NEVER)) - 1
    if at >= 0 and round < own[at][1]:
        return round
    if at + 1 < len(own):
        return own[at + 1][0]
    return own[0][0] + period if period else NEVER


def read(path: Path, count: int, period: int) -> Intervals:
    """The intervals of so many nodes; refused if the file cannot be read or says what is impossible."""
    try:
        content = read_whole(path)
    except OSError as error:
        raise InputError("trace_file", path, problem=f"cannot be read ({error.strerror})") from None
    if content is None:
        raise InputError("trace_file", path, problem="cannot be read (No such file or directory)")
    try:
        rows = csv.DictReader(io.StringIO(content.decode(), newline=""))
        found = sorted((int(row["node"]), int(row["from"]), int(row["until"])) for row in rows)
    except (KeyError, TypeError, ValueError, csv.Error):
        allowed = "it must have the columns node,from,until, all whole numbers"
        raise InputError("trace_file", path, allowed) from None
    last, bound = (period + 1, f"{period + 1} (trace_period + 1)") if period else (LAST, f"{LAST:,}")
    intervals: Intervals = [[] for _ in range(count)]
    for node, start, end in found:
        end = end if period else min(end, LAST)
        if not (0 <= node < count and 1 <= start < end <= last):
            allowed = f"nodes are 0 to {count - 1}, and rounds 1 <= from < until <= {bound}"
            raise InputError("trace_file", path, allowed, problem=f"has the row {node},{start},{end}")
        own = intervals[node]
        if own and start <= own[-1][1]:
            own[-1] = (own[-1][0], max(own[-1][1], end))
        else:
            own.append((start, end))
    return intervals
