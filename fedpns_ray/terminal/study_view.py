"""A study for people: one live table in a terminal, a line for every trial that ends elsewhere."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedpns_ray.experiment import Experiment
from fedpns_ray.study.estimate import Workload, workload
from fedpns_ray.study.packing import Packing
from fedpns_ray.study.study_file import Study, Trial

SHOWN = 12
"""Running trials that are shown."""
OVER = ("done", "diverged", "failed")
PATIENCE = 30.0
"""Seconds without a running trial after which the wait is explained."""


class StudyView:
    """Trials done, running and failed, the best so far, the time left."""

    def __init__(self, console: Console, study: Study, quiet: bool = False) -> None:
        self._console, self._study, self._quiet = console, study, quiet
        self._shown = console.is_terminal and not quiet
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
        if self._shown:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    # --- what happens ---------------------------------------------------------------------------------------------

    def begin(self, trials: Sequence[Trial], done: Iterable[str], packing: Packing) -> None:
        self._packing, self._began = packing, time.monotonic()
        self._experiments = {trial.name: trial.experiment for trial in trials}
        self._states = {trial.name: "waiting" for trial in trials} | dict.fromkeys(done, "done")
        self._expected = len(trials)
        already = list(self._states.values()).count("done")
        found = f", {already} of them done already" if already else ""
        self._print(f"{self._study.title}: {len(trials)} trials{found}; {packing.describe()}")

    def begin_search(self, tried: int, packing: Packing) -> None:
        self._packing, self._began = packing, time.monotonic()
        assert self._study.search is not None
        self._expected = self._study.search.trials - tried
        found = f", {tried} of them tried already" if tried else ""
        self._print(f"{self._study.title}: {self._study.search.trials} suggestions{found}; {packing.describe()}")

    def _print(self, message: str) -> None:
        if not self._quiet:
            self._console.print(message, soft_wrap=True)

    def update(self, name: str, experiment: Experiment, state: str, last: dict[str, Any]) -> None:
        self._experiments[name] = experiment
        before, self._states[name] = self._states.get(name), state
        self._rounds[name] = int(last.get("round", 0))
        best = float(last.get("best_accuracy", 0.0))
        if best > self._best[0]:
            self._best = best, name
        self._time(name, experiment, state)
        if not self._shown and state in OVER and before != state:
            done = sum(state in ("done", "diverged") for state in self._states.values())
            self._print(
                f"[{done}/{self._expected}] {self.label(name)}: {state}, best accuracy {best:.2%}{self._time_left()}"
            )

    def note(self, message: str) -> None:
        self._print(message)

    def tick(self) -> None:
        """Explain a long wait, once."""
        if not self._explained and self._waits():
            self._explained = True
            self._print("waiting for resources that others hold, or for machines that are being started")

    def _waits(self) -> bool:
        states = self._states.values()
        return "waiting" in states and "running" not in states and time.monotonic() - self._began > PATIENCE

    def _time(self, name: str, experiment: Experiment, state: str) -> None:
        """Seconds a round, from one report of a trial to the next."""
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
        """By the pace of each kind of trial so far."""
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
        return max([sum(left) / self._packing.at_once, *left], default=0.0)

    def _time_left(self) -> str:
        left = self.seconds_left()
        return "" if left is None else f", {clock(left)} left"

    def _render(self) -> Group:
        states = list(self._states.values())
        running = [name for name, state in list(self._states.items()) if state == "running"]
        counts = ", ".join(f"{states.count(state)} {state}" for state in ("done", "running", "failed", "waiting"))
        counts += f", {states.count('diverged')} diverged" if "diverged" in states else ""
        lines = [Text(f"{counts}; {clock(time.monotonic() - self._began)} gone{self._time_left()}")]
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
