"""Progress for people: one bar with round, accuracy and time left; nothing at all when piped."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedpns_ray.core.run import Record
from fedpns_ray.experiment import Experiment


class Bars:
    """The bar of a run."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("accuracy {task.fields[accuracy]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, experiment: Experiment) -> None:
        name = f"{experiment.label}, seed {experiment.seed}".replace("[", r"\[", 1)
        self._task = self._progress.add_task(name, total=experiment.rounds, accuracy="-")

    def advance(self, record: Record) -> None:
        self._progress.update(self._task, completed=record["round"])
        if record["test_accuracy"] is not None:
            self._progress.update(self._task, accuracy=f"{record['test_accuracy']:.2%}")

    def end(self) -> None:
        task = self._progress.tasks[self._task]
        self._progress.update(self._task, completed=task.total)

    def close(self) -> None:
        self._progress.stop()
