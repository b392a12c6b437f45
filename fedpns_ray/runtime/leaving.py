"""How a process that has used Ray ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable

_leaving: list[Callable[[], None]] = []


def leave_when_done(code: Callable[[], int | None]) -> None:
    """Make the process end with `code()` as soon as Python is done with it; with None it ends as usual.

    The destructors of native libraries are left out. A thread of Ray's that exports metrics outlives `ray.shutdown()`; if
    it wakes among them, a process that has done all its work dies of a segmentation fault (seen with Ray 2.60). Call this
    first: functions that are registered with atexit later run before.
    """

    def leave() -> None:
        number = code()
        if number is None:
            return
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(number)

    atexit.register(leave)
    _leaving.append(leave)


def leave_first() -> None:
    """Leave before, not after, what was registered with atexit since: Ray would take its time to leave a lost cluster."""
    for leave in _leaving:
        atexit.unregister(leave)
        atexit.register(leave)
