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


def message_level(quiet: bool) -> int:
    return logging.WARNING if quiet else logging.INFO


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM asks for a stop after the round; a second one stops at once."""
    asked: list[int] = []

    def handler(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        messages.print("stopping after this round …")

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, old in before.items():
            signal.signal(number, old)
