"""Deadlines of trials, kept by the driver process: a worker that hangs is killed, and Tune runs its trial again."""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

import ray

from fedpns_ray.records.file_names import FAULTS
from fedpns_ray.records.storage import Storage
from fedpns_ray.runtime.deadlines import STOPPED_WITHIN, Deadline
from fedpns_ray.runtime.ray_private import actor_of

logger = logging.getLogger(__name__)


class TrialWatch:
    """When each running trial last reported, and how long its next report may take."""

    def __init__(self, storage: Storage, patience: float) -> None:
        self._storage, self._patience = storage, patience
        self._heard: dict[str, float] = {}
        self._deadlines: dict[str, Deadline] = {}
        self._actors: dict[str, Any] = {}
        self._stopping: threading.Timer | None = None

    def started(self, trial: Any, delay: float) -> None:
        """`delay`: seconds that a report takes at least, because nodes are simulated to be slow."""
        self._deadlines[trial.trial_id] = Deadline(self._patience, delay)
        self._hear(trial)

    def reported(self, trial: Any) -> None:
        if trial.trial_id in self._heard:
            self._deadlines[trial.trial_id].observe(time.monotonic() - self._heard[trial.trial_id])
        self._hear(trial)

    def _hear(self, trial: Any) -> None:
        self._heard[trial.trial_id] = time.monotonic()
        self._actors[trial.trial_id] = actor_of(trial) or self._actors.get(trial.trial_id)

    def ended(self, trial: Any) -> None:
        self._heard.pop(trial.trial_id, None)

    def check(self, names: Iterable[tuple[Any, str]]) -> None:
        """Kill the workers that missed their deadline, of these running trials with their names."""
        for trial, name in names:
            heard = self._heard.get(trial.trial_id)
            silence = time.monotonic() - heard if heard else 0.0
            if heard and silence > self._deadlines[trial.trial_id].limit:
                self._kill(trial.trial_id, f"{name} did not report for {silence:.0f} s: its worker was killed")

    def _kill(self, trial_id: str, fault: str) -> None:
        logger.warning("%s, and it resumes from its checkpoint", fault)
        self._heard.pop(trial_id, None)
        if self._actors.get(trial_id):
            ray.kill(self._actors[trial_id])
        line = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ} {fault}"
        threading.Thread(target=self._storage.add_line, args=(FAULTS, line), daemon=True).start()  # it may hang, too

    def stop(self) -> None:
        """All trials are asked to stop: those that do not within a few seconds are ended."""
        if self._stopping is None:
            self._stopping = threading.Timer(STOPPED_WITHIN, self._end_all)
            self._stopping.daemon = True
            self._stopping.start()

    def _end_all(self) -> None:
        for actor in list(self._actors.values()):
            if actor:
                ray.kill(actor)  # without effect on one that has ended

    def close(self) -> None:
        if self._stopping:
            self._stopping.cancel()
