"""The progress of a run: one bar with round, accuracy and time left."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedpns_ray.experiment import Experiment
from fedpns_ray.progress.messages import is_live, printed
from fedpns_ray.records.record import Record

logger = logging.getLogger(__name__)


class RunProgress(Protocol):
    """Receives the progress of a run, between `__enter__` and `__exit__`."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self, experiment: Experiment) -> None:
        """The run is about to start."""
        ...

    def advance(self, record: Record) -> None:
        """A round is done."""
        ...


class RunBar:
    """A bar in a terminal or a notebook, and log messages of `level` and above; no bar above INFO."""

    def __init__(self, console: Console, level: int = logging.INFO) -> None:
        self._console, self._level = console, level
        self._shown = ExitStack()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("accuracy {task.fields[accuracy]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not is_live(console, level),
        )

    def __enter__(self) -> RunBar:
        self._shown.enter_context(printed(self._console, self._level))
        self._shown.enter_context(self._bar)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.close()

    def begin(self, experiment: Experiment) -> None:
        name = f"{experiment.label}, seed {experiment.seed}"
        if self._console.is_jupyter and self._bar.disable:
            logger.info("%s; for a progress bar: pip install fedpns-ray[notebook]", name)
        self._task = self._bar.add_task(escape(name), total=experiment.rounds, accuracy="-")

    def advance(self, record: Record) -> None:
        self._bar.update(self._task, completed=record.round)
        if record.test_accuracy is not None:
            self._bar.update(self._task, accuracy=f"{record.test_accuracy:.2%}")
