"""Whether what is watched is still being written: a run's lock is held, or a study's owner is alive. Only reads."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fedpns_ray.atomic_file import CAREFUL, NO_LINK
from fedpns_ray.errors import InputError
from fedpns_ray.file_lock import hold
from fedpns_ray.records.claims import read_claim
from fedpns_ray.records.file_names import ALIVE
from fedpns_ray.records.run_folder import LOCK
from fedpns_ray.records.storage import Storage
from fedpns_ray.reporting.collecting import Gathered

SILENCE = 45.0
"""Seconds without a new sign of life after which a study on another machine counts as stopped."""
GRACE = 15.0
"""Seconds for which nobody must have been there: a run that lost its server is taken up by another one."""


class Liveness:
    """What is known about the writer of a place, by looking at it again and again."""

    def __init__(self, place: str) -> None:
        self._storage = Storage(place)
        self._sign, self._changed = b"", time.monotonic()
        self._gone: float | None = None

    def stopped(self, gathered: Gathered, at_once: bool = False) -> bool:
        """Whether something is unfinished and no process is working on it; with `at_once`, without the grace period."""
        if all(run.over for run in gathered.runs) and len(gathered.runs) >= gathered.expected:
            return False
        if self._alive(gathered) is not False:
            self._gone = None
            return False
        self._gone = self._gone or time.monotonic()
        return at_once or time.monotonic() - self._gone >= GRACE

    def _alive(self, gathered: Gathered) -> bool | None:
        """None where that cannot be known."""
        source = gathered.sources[0]
        if source.kind == "study":
            return self._owned()
        if self._storage.path is None:
            return None
        unfinished = [run.name for run in gathered.runs if not run.over]
        folders = [self._storage.path] if source.kind == "run" else [self._storage.path / name for name in unfinished]
        found = [is_locked(folder) for folder in folders]
        return True if True in found else None if None in found else False

    def _owned(self) -> bool | None:
        try:
            claim = read_claim(self._storage)
            if claim is None:
                return None
            if claim.ended or claim.is_of_this_machine:
                return not claim.ended and claim.process_is_alive
            sign = self._storage.read(ALIVE + claim.id) or b""
        except (InputError, OSError):  # a bucket that does not answer says nothing about the study
            return None
        if sign != self._sign:
            self._sign, self._changed = sign, time.monotonic()
        return time.monotonic() - self._changed < SILENCE


def is_locked(folder: Path) -> bool | None:
    """Whether a process holds the lock of a run's folder; None if the folder or this system has none."""
    try:
        with os.fdopen(os.open(folder / LOCK, os.O_RDONLY | CAREFUL | NO_LINK), "rb") as file:
            hold(file, shared=True)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return None
