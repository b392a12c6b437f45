"""Trials that wait for machines: Tune waits in silence, and forever."""

from __future__ import annotations

import logging
import time

from fedpns_ray.errors import LostError
from fedpns_ray.runtime.arrivals import LOOK_EVERY, SAID_EVERY, Arrivals
from fedpns_ray.runtime.session import machines
from fedpns_ray.study.packing import Packing, holds

FREED_WITHIN = 600.0
"""Seconds to wait for resources that other jobs hold; workers that start are among them, to Tune they look alike."""

logger = logging.getLogger(__name__)


class MachineWait:
    """Says what is awaited while no trial runs; a LostError after the limit.

    Either no machine can hold a trial, and one must be started; or one could, and its resources are in use.
    """

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._arrivals: Arrivals | None = None
        self._idle: float | None = None
        """Since when no trial runs although a machine could hold one."""
        self._looked = self._said = float("-inf")

    def check(self, running: bool) -> None:
        """To be called often; `running`: whether a trial runs."""
        now = time.monotonic()
        if running:
            self._arrivals = self._idle = None
        elif now - self._looked > LOOK_EVERY:
            self._looked = now
            if holds(machines(whole=True), self._packing):
                self._arrivals = None
                self._wait_for_others(now)
            else:
                self._idle = None
                self._arrivals = self._arrivals or Arrivals(self._packing.describe())
                self._arrivals.look()

    def _wait_for_others(self, now: float) -> None:
        if self._idle is None:
            self._idle = self._said = now
        waited = now - self._idle
        if waited > FREED_WITHIN:
            raise LostError(
                f"no trial could start within {FREED_WITHIN:.0f} s, although one fits: others use the machines"
            )
        if now - self._said > SAID_EVERY:
            self._said = now
            why = "workers are starting, or others use the machines"
            logger.info("no trial runs yet: %s; %.0f of %.0f s", why, waited, FREED_WITHIN)
