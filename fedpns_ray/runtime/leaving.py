"""How a process that has used Ray ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable

_leaving: list[Callable[[], None]] = []


def leave_when_done(code: Callable[[], int | None]) -> None:
    """Exit with `code()` once Python's exit handlers have run; with None the process ends normally.

    This skips the destructors of native libraries. A metrics thread of Ray outlives `ray.shutdown()`; if it wakes up
    while they run, a process that has finished its work dies with a segmentation fault (seen with Ray 2.60). Call this
    before anything else registers with atexit: handlers run in reverse order.
    """

    def leave() -> None:
        number = code()
        if number is None:
            return
        with contextlib.suppress(OSError, ValueError):  # whatever read the output is gone
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(number)

    atexit.register(leave)
    _leaving.append(leave)


def leave_first() -> None:
    """Exit before the handlers that were registered later run: Ray's would take seconds to leave a lost cluster."""
    for leave in _leaving:
        atexit.unregister(leave)
        atexit.register(leave)
