"""Where commands print, and how they are told to stop."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140)
messages = Console(stderr=True, highlight=False, markup=False)


NOTICED_WITHIN = 7.0
"""Seconds for a command to notice that it was asked to stop."""


def message_level(quiet: bool) -> int:
    return logging.WARNING if quiet else logging.INFO


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM asks for a stop; a second one stops at once.

    So does the first one if nobody has looked at the request for a few seconds, because a long round or a question to
    a bucket keeps this process busy.
    """
    asked: list[int] = []

    def handler(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        messages.print("stopping …")
        signal.setitimer(signal.ITIMER_REAL, NOTICED_WITHIN)

    def is_asked() -> bool:
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
