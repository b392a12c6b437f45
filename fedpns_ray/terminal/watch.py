"""`fedpns watch`: a running experiment or study, its curves, its selection, its progress. Only reads folders."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedpns_ray.errors import InputError
from fedpns_ray.records.file_names import STUDY, TRIALS
from fedpns_ray.records.record import CORE, FATES, Record
from fedpns_ray.records.schema import plotted
from fedpns_ray.terminal.screen import console, messages

if TYPE_CHECKING:
    from fedpns_ray.core.quantity import Quantity
    from fedpns_ray.records.storage import Storage
    from fedpns_ray.reporting.collecting import Gathered
    from fedpns_ray.reporting.runs import Run

WHAT = "Show a running experiment or study, live."
RUNS_CODE = False
EXAMPLES = """examples:
  fedpns watch runs/first                                        a run, live, until it ends or Ctrl-C
  fedpns watch runs/fig3 --html live.html                        a study, and its page, rewritten every few seconds

It waits for runs that have not started yet. Exit code 0: all runs have ended, 1: they were stopped before their end.
"""
BLOCKS = "▁▂▃▄▅▆▇█"
CURVE = 60
"""Characters of the curve of a single run; in a table, a third of them."""
SHOWN = 30
"""The most runs of a study that are shown, running ones first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a run, a study, or a folder of runs; a URI works too")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="also write the page, and rewrite it as rounds come in"
    )
    parser.add_argument(
        "--every", default="2", metavar="SECONDS", help="seconds between two updates (default: %(default)s)"
    )
    parser.add_argument(
        "--wait", default="600", metavar="SECONDS", help="how long to wait for it to start (default: %(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="show the current state and exit")


def command(options: argparse.Namespace) -> int:
    """Watch until the last run ends or is stopped, or until Ctrl-C; never changes what it watches."""
    from fedpns_ray.reporting.collecting import gather
    from fedpns_ray.reporting.liveness import Liveness
    from fedpns_ray.reporting.page import write_page

    every, written, wait = _seconds("every", options.every), -1, _seconds("wait", options.wait)
    if not options.once:
        _await_begin(options.folder, every, wait)
    liveness = Liveness(options.folder)
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        while True:
            began = time.monotonic()
            gathered = gather([options.folder])
            stopped = liveness.stopped(gathered, at_once=options.once)
            if live:
                live.update(view(gathered, stopped), refresh=True)
            rounds = sum(len(run.records) for run in gathered.runs)
            over = options.once or stopped or ended(gathered)
            if options.html and (rounds != written or over):
                write_page(gathered, options.html, shlex.join(["fedpns", "report", gathered.sources[0].place]))
                written = rounds
            if over:
                break
            spent = time.monotonic() - began
            time.sleep(max(every, 2 * spent))  # a large study is read less often, so as not to load the machine
    if not console.is_terminal:
        console.print(view(gathered, stopped))
    return 1 if stopped and not options.once else 0


def _await_begin(place: str, every: float, wait: float) -> None:
    """Wait until something is there to be read; an InputError if nothing is in time."""
    from fedpns_ray.records.storage import Storage

    storage, began, said = Storage(place), time.monotonic(), False
    while _to_come(storage):
        if time.monotonic() - began >= wait:
            raise InputError(str(storage), problem=f"has not started within {wait:g} s")
        if not said:
            messages.print(f"waiting for {storage} to start …", soft_wrap=True)
            said = True
        time.sleep(min(every, max(0.0, began + wait - time.monotonic())))


def _to_come(storage: Storage) -> bool:
    """Whether a run or a study may begin here: there is no such place, it is empty, or a study without a trial."""
    if storage.path and not os.path.lexists(storage.path):
        return True
    if storage.path and not storage.path.is_dir():
        return False
    there = [name for name in storage.names() if not name.startswith(".")]
    return not there or (STUDY in there and not storage.names(TRIALS))


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(name, text, "it must be a number of seconds above 0")
    return seconds


def ended(gathered: Gathered) -> bool:
    """Whether every expected run is there and over."""
    return len(gathered.runs) >= gathered.expected and all(run.over for run in gathered.runs)


def view(gathered: Gathered, stopped: bool = False) -> RenderableType:
    """A view of what the folders hold now; `stopped`: nobody is working on what is unfinished."""
    if len(gathered.runs) == gathered.expected == 1 and not gathered.left_out:
        return _one(gathered.runs[0], stopped)
    return _many(gathered, stopped)


def spark(values: Sequence[float | None], width: int, low: float | None = None, high: float | None = None) -> str:
    """A curve in block characters, each the mean of its share of the values."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    low, high = min(known) if low is None else low, max(known) if high is None else high
    width = min(width, len(known))
    cuts = [round(k * len(known) / width) for k in range(width + 1)]
    means = [sum(known[a:b]) / (b - a) for a, b in itertools.pairwise(cuts)]
    span = (high - low) or 1.0
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[min(top, max(0, round(top * (mean - low) / span)))] for mean in means)


def _state(run: Run, stopped: bool) -> str:
    if run.diverged:
        return f"diverged in round {len(run.records)}"
    if stopped:
        return f"stopped after round {len(run.records)} of {run.experiment.rounds}; the same command resumes"
    return "finished" if run.finished else f"round {len(run.records)} of {run.experiment.rounds}"


def _last(run: Run, key: str) -> float | None:
    return next((record[key] for record in reversed(run.records) if record.get(key) is not None), None)


def _number(value: float | None, quantity: Quantity) -> str:
    if value is None:
        return "-"
    return f"{quantity.scale * value:.2f}%" if quantity.unit == "%" else f"{quantity.scale * value:.4f}"


def _shown(run: Run) -> list[Quantity]:
    """Accuracy and loss, and what the run's parts declare."""
    core = set(CORE) - {Record.test_accuracy, Record.test_loss}
    return [quantity for quantity in plotted(run.quantities) if quantity.key not in core]


def _one(run: Run, stopped: bool) -> Group:
    """One run: curves of accuracy, loss and the quantities of its parts, the last round, every node's draws."""
    e = run.experiment
    lines: list[RenderableType] = [
        Text(f"{e.label} on {e.dataset} ({e.model}), seed {e.seed}: {_state(run, stopped)}", style="bold")
    ]
    grid = Table(box=None, pad_edge=False, show_header=False)
    for quantity in _shown(run):
        curve = spark([record.get(quantity.key) for record in run.records], CURVE)
        if curve:
            grid.add_row(quantity.title, curve, _number(_last(run, quantity.key), quantity))
    if run.records:
        last, iid = run.records[-1], run.iid_nodes
        drawn = Counter(node for record in run.records for node in record.drawn)
        grid.add_row("times drawn, i.i.d. nodes", _bars([drawn[node] for node in range(min(iid, CURVE))], drawn), "")
        others = range(iid, min(e.nodes, iid + CURVE))
        grid.add_row("times drawn, other nodes", _bars([drawn[node] for node in others], drawn), "")
        lines.append(grid)
        for fate in FATES:
            lines.append(Text(f"{fate} in round {last.round}: {' '.join(map(str, last[fate])) or 'none'}"))
    return Group(*lines)


def _bars(counts: Sequence[int], drawn: Counter[int]) -> str:
    return "".join(spark([count], 1, 0, max(drawn.values())) for count in counts)


def _many(gathered: Gathered, stopped: bool) -> Group:
    """One row per run, running ones first."""
    from fedpns_ray.reporting.names import in_words

    runs = sorted(gathered.runs, key=lambda run: (run.over, -len(run.records)))
    done, diverged = sum(run.finished for run in runs), sum(run.diverged for run in runs)
    waiting = max(0, gathered.expected - len(runs))
    state = "stopped" if stopped else "unfinished"
    counts = f"{done} finished, {len(runs) - done - diverged} {state}, {waiting} to come"
    counts += f", {diverged} diverged" if diverged else ""
    counts += "; no process is working on it; the same command resumes" if stopped else ""
    grid = Table(box=None, pad_edge=False)
    accuracy, loss = CORE[Record.test_accuracy], CORE[Record.test_loss]
    for column in ("run", "round", "of", "accuracy", "loss", ""):
        grid.add_column(column, justify="left" if column in ("run", "") else "right", no_wrap=True)
    for run in runs[:SHOWN]:
        settings: dict[str, Any] = run.experiment.settings() | {"strategy": run.experiment.label}
        axes = [axis for axis in gathered.study.axes if axis not in ("strategy", *run.experiment.parts)]
        grid.add_row(
            ", ".join(filter(None, [in_words(settings, ["strategy", *axes]), f"seed {run.experiment.seed}"])),
            str(len(run.records)),
            str(run.experiment.rounds),
            _number(_last(run, accuracy.key), accuracy),
            _number(_last(run, loss.key), loss),
            spark([record.test_accuracy for record in run.records], CURVE // 3, 0.0, 1.0),
        )
    rest = [Text(f"… and {len(runs) - SHOWN} more")] if len(runs) > SHOWN else []
    left_out = [Text(note) for note in gathered.left_out]
    return Group(Text(f"{gathered.study.title}: {counts}", style="bold"), grid, *rest, *left_out)
