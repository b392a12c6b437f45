"""Where commands print, and how they are asked to stop."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from fedpns_ray.errors import InputError

console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140)
messages = Console(stderr=True, highlight=False, markup=False)


NOTICED_WITHIN = 7.0
"""Seconds for a command to notice that it was asked to stop."""


def message_level(quiet: bool) -> int:
    return logging.WARNING if quiet else logging.INFO


@contextmanager
def stop_on_signal(time_limit: float | None = None) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM asks for a stop, as does the end of the time limit; a second one stops at once.

    So does the first one as long as nobody has asked, since nothing is under way yet; and if nobody has looked at the
    request for a few seconds, because a long round or a question to a bucket keeps this process busy.
    """
    if not hasattr(signal, "setitimer"):
        raise InputError("", problem="experiments run on Linux and macOS", hint="--submit sends them to a cluster")
    asked: list[int] = []
    under_way = threading.Event()
    deadline = None if time_limit is None else time.monotonic() + time_limit

    def handler(number: int, frame: Any) -> None:
        if asked or not under_way.is_set():
            raise KeyboardInterrupt
        asked.append(number)
        messages.print("stopping …")
        signal.setitimer(signal.ITIMER_REAL, NOTICED_WITHIN)

    def is_asked() -> bool:
        under_way.set()
        if deadline is not None and not asked and time.monotonic() > deadline:
            asked.append(0)
            messages.print(f"the time limit of {time_limit:g} s is reached: stopping …")
        if asked:
            signal.setitimer(signal.ITIMER_REAL, 0)  # it is noticed
        return bool(asked)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield is_asked
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, old in before.items():
            signal.signal(number, old)
