"""Why the cloud refused machines, from the autoscaler's log on the head: its status does not tell.

The second autoscaler reports that a launch failed, and drops the reason (`LaunchNodeError` keeps no cause); the log has
it, in the cloud's words: no capacity, no quota, a missing role.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedpns_ray.runtime.ray_private import Launch

LOG = "monitor.log"
TAIL = 65_536
"""Bytes at the end of the log that are read."""
RECENT = 600.0
"""Seconds for which a refusal counts as the reason: the autoscaler tries again every few minutes at least."""
REFUSED = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\S*\s.*?Failed to launch (\d+) nodes of type (\S+): (.+)$")


@dataclass(frozen=True)
class Refusal:
    """Machines that could not be had."""

    at: float
    """In seconds since 1970."""
    machines: int
    reason: str


def refusals(text: str, now: float) -> dict[str, Refusal]:
    """The last recent refusal of each type of machine."""
    found = {}
    for line in text.splitlines():
        if told := REFUSED.match(line):
            at = time.mktime(time.strptime(told[1], "%Y-%m-%d %H:%M:%S"))
            if now - at <= RECENT:
                found[told[3]] = Refusal(at, int(told[2]), told[4].strip())
    return found


def read_refusals(folder: Path, now: float) -> dict[str, Refusal]:
    """The same from the folder of Ray's logs; nothing where the log is not, as on every machine but the head."""
    try:
        with (folder / LOG).open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - TAIL))
            return refusals(log.read().decode(errors="replace"), now)
    except OSError:
        return {}


def explained(launches: Iterable[Launch], known: dict[str, Refusal]) -> list[Launch]:
    """The launches, failed ones with the log's reason; and failed ones that only the log tells of."""
    given = list(launches)
    told = {launch.kind for launch in given if launch.failed}
    found = [
        launch._replace(reason=known[launch.kind].reason) if launch.failed and launch.kind in known else launch
        for launch in given
    ]
    return found + [
        Launch(kind, refusal.machines, True, refusal.at, refusal.reason)
        for kind, refusal in known.items()
        if kind not in told
    ]
