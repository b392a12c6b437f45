"""A running experiment or study in a terminal: its curve, its selection, how far it has come. Reads folders only."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedpns_ray.reporting.collecting import Gathered, Run
from fedpns_ray.reporting.curves import label_of

BLOCKS = "▁▂▃▄▅▆▇█"
CURVE = 60
"""Characters of the curve of a single run; in a table it has a third of them."""
SHOWN = 30
"""Runs of a study that are shown: those that run come first."""


def ended(gathered: Gathered) -> bool:
    """Every run that is expected is there and finished."""
    return len(gathered.runs) >= gathered.expected and all(run.over for run in gathered.runs)


def view(gathered: Gathered) -> RenderableType:
    """What stands in the folders now."""
    if len(gathered.runs) == gathered.expected == 1:
        return _one(gathered.runs[0])
    return _many(gathered)


def spark(values: Sequence[float | None], width: int, low: float | None = None, high: float | None = None) -> str:
    """A curve in block characters: each stands for the mean of its share of the values."""
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


def _state(run: Run) -> str:
    if run.diverged:
        return f"diverged in round {len(run.records)}"
    return "finished" if run.finished else f"round {len(run.records)} of {run.experiment.rounds}"


def _last(run: Run, key: str) -> float | None:
    return next((record[key] for record in reversed(run.records) if record.get(key) is not None), None)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _one(run: Run) -> Group:
    """One run: curves of accuracy, loss and the share of i.i.d. nodes, the last round, every node's draws."""
    e = run.experiment
    lines: list[RenderableType] = [
        Text(f"{e.label} on {e.dataset} ({e.model}), seed {e.seed}: {_state(run)}", style="bold")
    ]
    grid = Table(box=None, pad_edge=False, show_header=False)
    for key, name, form in (
        ("test_accuracy", "test accuracy", ".2%"),
        ("test_loss", "test loss", ".4f"),
        ("iid_probability", "probability of i.i.d. nodes", ".1%"),
    ):
        curve = spark([record.get(key) for record in run.records], CURVE)
        if curve:
            grid.add_row(name, curve, _number(_last(run, key), form))
    if run.records:
        last, iid = run.records[-1], run.iid_nodes
        drawn = Counter(node for record in run.records for node in record["drawn"])
        grid.add_row("times drawn, i.i.d. nodes", _bars([drawn[node] for node in range(min(iid, CURVE))], drawn), "")
        others = range(iid, min(e.nodes, iid + CURVE))
        grid.add_row("times drawn, other nodes", _bars([drawn[node] for node in others], drawn), "")
        lines.append(grid)
        for fate in ("drawn", "labelled", "excluded"):
            lines.append(Text(f"{fate} in round {last['round']}: {' '.join(map(str, last[fate])) or 'none'}"))
    return Group(*lines)


def _bars(counts: Sequence[int], drawn: Counter[int]) -> str:
    return "".join(spark([count], 1, 0, max(drawn.values())) for count in counts)


def _many(gathered: Gathered) -> Group:
    """A row a run, those that are under way first."""
    runs = sorted(gathered.runs, key=lambda run: (run.over, -len(run.records)))
    done, diverged = sum(run.finished for run in runs), sum(run.diverged for run in runs)
    waiting = max(0, gathered.expected - len(runs))
    counts = f"{done} finished, {len(runs) - done - diverged} begun, {waiting} to come"
    counts += f", {diverged} diverged" if diverged else ""
    grid = Table(box=None, pad_edge=False)
    for column in ("run", "round", "of", "accuracy", "loss", "", "i.i.d."):
        grid.add_column(column, justify="left" if column in ("run", "") else "right", no_wrap=True)
    for run in runs[:SHOWN]:
        settings: dict[str, Any] = run.experiment.settings() | {"strategy": run.experiment.label}
        axes = [axis for axis in gathered.study.axes if axis not in ("strategy", *run.experiment.parts)]
        grid.add_row(
            ", ".join(filter(None, [label_of(settings, ["strategy", *axes]), f"seed {run.experiment.seed}"])),
            str(len(run.records)),
            str(run.experiment.rounds),
            _number(_last(run, "test_accuracy"), ".2%"),
            _number(_last(run, "test_loss"), ".3f"),
            spark([record.get("test_accuracy") for record in run.records], CURVE // 3, 0.0, 1.0),
            _number(_last(run, "iid_probability"), ".0%"),
        )
    rest = [Text(f"… and {len(runs) - SHOWN} more")] if len(runs) > SHOWN else []
    return Group(Text(f"{gathered.study.title}: {counts}", style="bold"), grid, *rest)
