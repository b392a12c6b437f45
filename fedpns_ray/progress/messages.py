"""The package's log messages, printed through the console of a progress display so that the two do not collide."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from rich.console import Console
from rich.text import Text

SILENT = logging.CRITICAL + 1
"""A level above all messages."""

package_logger = logging.getLogger("fedpns_ray")


class _Printer(logging.Handler):
    def __init__(self, console: Console, level: int) -> None:
        super().__init__(level)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._console.print(Text(record.getMessage()), soft_wrap=True)
        except Exception:  # as in every handler of `logging`: a message must not end the run
            self.handleError(record)


@contextmanager
def printed(console: Console, level: int) -> Iterator[None]:
    """Print messages of this level and above. Within another display, that one keeps printing them."""
    if any(isinstance(handler, _Printer) for handler in package_logger.handlers):
        yield
        return
    printer, before = _Printer(console, level), package_logger.level
    package_logger.addHandler(printer)
    if before == logging.NOTSET and package_logger.getEffectiveLevel() > level:
        package_logger.setLevel(level)
    try:
        yield
    finally:
        package_logger.setLevel(before)
        package_logger.removeHandler(printer)


def stderr_console() -> Console:
    return Console(stderr=True, highlight=False, markup=False)


def level_for(console: Console, progress: bool) -> int:
    """The level to print: everything in a terminal or a notebook, warnings elsewhere, nothing without `progress`."""
    if not progress:
        return SILENT
    return logging.INFO if console.is_terminal or console.is_jupyter else logging.WARNING


def is_live(console: Console, level: int) -> bool:
    """Whether to show a live display. In notebooks, rich needs ipywidgets for it."""
    capable = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal
    return capable and level <= logging.INFO
