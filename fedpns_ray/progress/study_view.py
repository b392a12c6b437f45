"""The progress of a study: a live table in a terminal or a notebook; elsewhere, one line per trial that ends."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedpns_ray.experiment import Experiment
from fedpns_ray.progress.messages import is_live, printed
from fedpns_ray.study.estimate import Workload, workload
from fedpns_ray.study.packing import Packing
from fedpns_ray.study.study_file import Study, Trial
from fedpns_ray.study.trial import TrialReport
from fedpns_ray.study.tune import Watch

logger = logging.getLogger(__name__)

SHOWN = 12
"""The most running trials that are shown."""
OVER = ("done", "diverged", "failed")
PATIENCE = 30.0
"""Seconds without a running trial after which the wait is explained."""


class StudyProgress(Watch, Protocol):
    """Receives the progress of a study, between `__enter__` and `__exit__`."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class StudyView:
    """Trials done, running and failed, the best so far, the time left; and log messages of `level` and above."""

    def __init__(self, console: Console, study: Study, level: int = logging.INFO) -> None:
        self._console, self._study, self._level = console, study, level
        self._is_live, self._shown = is_live(console, level), ExitStack()
        self._states: dict[str, str] = {}
        self._expected = 0
        self._experiments: dict[str, Experiment] = {}
        self._rounds: dict[str, int] = {}
        self._best: tuple[float, str] = (0.0, "")
        self._paces: dict[Workload, list[float]] = defaultdict(list)
        self._seen: dict[str, tuple[float, int]] = {}
        self._packing: Packing | None = None
        self._began = time.monotonic()
        self._explained = False
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=True)

    def __enter__(self) -> StudyView:
        self._shown.enter_context(printed(self._console, self._level))
        if self._is_live:
            self._shown.enter_context(self._live)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.close()

    # --- what happens ---------------------------------------------------------------------------------------------

    def begin(self, trials: Sequence[Trial], done: Iterable[str], packing: Packing) -> None:
        self._packing, self._began = packing, time.monotonic()
        self._experiments = {trial.name: trial.experiment for trial in trials}
        self._states = {trial.name: "waiting" for trial in trials} | dict.fromkeys(done, "done")
        self._expected = len(trials)
        already = list(self._states.values()).count("done")
        found = f", {already} of them already done" if already else ""
        logger.info("%s: %d trials%s; %s", self._study.title, len(trials), found, packing.describe())

    def begin_search(self, tried: int, packing: Packing) -> None:
        self._packing, self._began = packing, time.monotonic()
        assert self._study.search is not None
        count = self._study.search.trials
        self._expected = count - tried
        found = f", {tried} of them already tried" if tried else ""
        logger.info("%s: %d suggestions%s; %s", self._study.title, count, found, packing.describe())

    def update(self, name: str, experiment: Experiment, state: str, last: TrialReport) -> None:
        self._experiments[name] = experiment
        before, self._states[name] = self._states.get(name), state
        self._rounds[name] = last.round or 0
        best = last.best_accuracy or 0.0
        if best > self._best[0]:
            self._best = best, name
        self._time(name, experiment, state)
        if not self._is_live and state in OVER and before != state:
            done = sum(state in ("done", "diverged") for state in self._states.values())
            line = f"{self.label(name)}: {state}{f', best accuracy {best:.2%}' if best else ''}{self._time_left()}"
            logger.info("[%d/%d] %s", done, self._expected, line)

    def tick(self) -> None:
        """Explain a long wait, once."""
        if not self._explained and self._waits():
            self._explained = True
            logger.info("waiting for resources that other jobs hold, or for machines that are being started")

    def _waits(self) -> bool:
        states = self._states.values()
        return "waiting" in states and "running" not in states and time.monotonic() - self._began > PATIENCE

    def _time(self, name: str, experiment: Experiment, state: str) -> None:
        """Seconds per round, from one report of a trial to the next."""
        now, (then, round) = time.monotonic(), self._seen.get(name, (0.0, 0))
        if name in self._seen and self._rounds[name] > round:
            self._paces[workload(experiment)].append((now - then) / (self._rounds[name] - round))
        self._seen[name] = now, self._rounds[name]
        if state != "running":
            del self._seen[name]

    # --- what is shown --------------------------------------------------------------------------------------------

    def label(self, name: str) -> str:
        experiment = self._experiments[name]
        settings = experiment.settings()
        axes = [key for key in self._study.axes if key != "strategy" and key in settings]
        parts = [experiment.label, *(f"{key} {settings[key]}" for key in axes), f"seed {experiment.seed}"]
        return ", ".join(parts)

    def seconds_left(self) -> float | None:
        """The time left, estimated from the pace of each kind of trial so far."""
        paces = {kind: sum(values) / len(values) for kind, values in list(self._paces.items())}
        if not paces or self._packing is None:
            return None
        usual = sum(paces.values()) / len(paces)
        left = [
            (self._experiments[name].rounds - self._rounds.get(name, 0))
            * paces.get(workload(self._experiments[name]), usual)
            for name, state in list(self._states.items())
            if state in ("waiting", "running")
        ]
        at_once = max(self._packing.at_once, list(self._states.values()).count("running"))  # more, if they are fused
        return max([sum(left) / at_once, *left], default=0.0)

    def _time_left(self) -> str:
        left = self.seconds_left()
        return "" if left is None else f", {clock(left)} left"

    def _render(self) -> Group:
        states = list(self._states.values())
        running = [name for name, state in list(self._states.items()) if state == "running"]
        counts = ", ".join(f"{states.count(state)} {state}" for state in ("done", "running", "failed", "waiting"))
        counts += f", {states.count('diverged')} diverged" if "diverged" in states else ""
        lines = [Text(f"{counts}; {clock(time.monotonic() - self._began)} elapsed{self._time_left()}")]
        if self._best[1] in self._experiments:
            lines.append(Text(f"best so far {self._best[0]:.2%}: {self.label(self._best[1])}"))
        grid = Table(box=None, pad_edge=False)
        for column in ("running", "round", "of"):
            grid.add_column(column, justify="left" if column == "running" else "right")
        for name in running[:SHOWN]:
            grid.add_row(self.label(name), str(self._rounds.get(name, 0)), str(self._experiments[name].rounds))
        if len(running) > SHOWN:
            grid.add_row(f"… and {len(running) - SHOWN} more")
        return Group(*lines, grid)


def clock(seconds: float) -> str:
    """75 → 1:15; 4000 → 1:06:40."""
    hours, rest = divmod(round(seconds), 3600)
    return (f"{hours}:{rest // 60:02d}" if hours else f"{rest // 60}") + f":{rest % 60:02d}"
