"""Waiting for machines that the autoscaler starts: aloud, with its own reasons, and not forever.

A cluster at rest has a head and nothing else. What is planned on machines to come waits until they are there; the
cloud may be out of capacity, or the account out of quota, and the user who waits must be told.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable

import ray
from ray.exceptions import RayError

from fedpns_ray.errors import LostError, one_line
from fedpns_ray.runtime import ray_private
from fedpns_ray.runtime.launch_log import explained, read_refusals
from fedpns_ray.runtime.lookout import guarded
from fedpns_ray.runtime.ray_private import Launch

ARRIVED_WITHIN = 1800.0
"""Seconds to wait for machines: one with a GPU is ready after 5 to 20 minutes, most of which installs its software."""
SAID_EVERY = 15.0
"""Seconds between two messages while waiting, unless something changes."""
LOOK_EVERY = 1.0
LONGEST_REASON = 300
"""Characters of the autoscaler's reason that are shown: a cloud's error names what is missing near its beginning."""

logger = logging.getLogger(__name__)


class Arrivals:
    """One wait for machines."""

    def __init__(self, purpose: str) -> None:
        """`purpose`: what waits, such as "2 actors, 1 CPU each"."""
        self._purpose = purpose
        self._began = time.monotonic()
        self._looked = self._said = float("-inf")
        self._news = ""

    def look(self) -> None:
        """Say what is known, now and then; a LostError once the limit is reached. To be called often."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked, waited = now, now - self._began
        news = guarded(_news)
        if waited > ARRIVED_WITHIN:
            raise LostError(f"no machine for {self._purpose} came within {ARRIVED_WITHIN:.0f} s ({news})")
        if news != self._news or now - self._said > SAID_EVERY:
            logger.info("waiting for machines for %s, %.0f of %.0f s: %s", self._purpose, waited, ARRIVED_WITHIN, news)
            self._news, self._said = news, now

    def wait(self, arrived: Callable[[], bool], stop: Callable[[], bool]) -> bool:
        """Wait until what was planned is placed; False if a stop was asked for before."""
        self.look()
        while not arrived():
            if stop():
                return False
            self.look()
        logger.info("the machines are there, after %.0f s", time.monotonic() - self._began)
        return True


def _news() -> str:
    try:
        known = read_refusals(ray_private.logs_folder(), time.time())
        return described(explained(ray_private.launches(), known), _up())
    except (RayError, RuntimeError, ValueError) as error:
        return f"what the autoscaler does cannot be read: {one_line(error)}"


def described(launches: Iterable[Launch], up: Counter[str]) -> str:
    """`gpu-spot: 1 up, 2 starting since 14:02:10; 1 could not be started at 14:03:00 (InsufficientCapacity …)`."""
    kinds: dict[str, list[str]] = {name: [f"{count} up"] for name, count in sorted(up.items())}
    for launch in launches:
        since = time.strftime("%H:%M:%S", time.localtime(launch.at)) if launch.at else ""
        if launch.failed:
            at = f" at {since}" if since else ""
            words = f"{launch.machines} could not be started{at} ({one_line(launch.reason, LONGEST_REASON)})"
        else:
            words = f"{launch.machines} starting" + (f" since {since}" if since else "")
            words += f" ({one_line(launch.reason)})" if launch.reason else ""
        kinds.setdefault(launch.kind, []).append(words)
    return "; ".join(f"{name}: {', '.join(words)}" for name, words in kinds.items()) or "none has been asked for yet"


def _up() -> Counter[str]:
    """Machines that are up, by the name of their type; without the head."""
    config = ray_private.autoscaling_config() or {}
    labels = (node["Labels"].get(ray_private.NODE_GROUP) for node in ray.nodes() if node["Alive"])
    return Counter(name for name in labels if name and name != config.get("head_node_type"))
