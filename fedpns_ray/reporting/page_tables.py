"""The tables of the page, as text: the same digits as in the terminal, which a browser would round differently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.record import CORE, COSTS, Record
from fedpns_ray.records.summary import LAST
from fedpns_ray.reporting.collecting import Gathered
from fedpns_ray.reporting.curves import line_axes
from fedpns_ray.reporting.formatting import form_of, formatted, with_interval
from fedpns_ray.reporting.names import in_words
from fedpns_ray.reporting.ranking import best, ranked
from fedpns_ray.reporting.runs import Run
from fedpns_ray.reporting.series import SECONDS, Series
from fedpns_ray.reporting.tables import judged_by, table

HIGHER, LOWER = "higher", "lower"
RUN_COLUMNS = {
    "seed": "", "status": "", "rounds": HIGHER, "final accuracy": HIGHER, "best accuracy": HIGHER, "last loss": LOWER,
    "seconds": LOWER, "weights": "", "folder": "",
}  # fmt: skip
"""The columns of individual runs, and whether higher or lower values come first."""


def results_table(gathered: Gathered) -> dict[str, Any]:
    """One row per setting with finished runs, best first, as `fedpns study` prints it."""
    results = gathered.results
    rows = ranked(table(results, gathered.trials), results)
    if rows.empty:
        return {"header": [], "better": [], "rows": [], "values": [], "best": []}
    header, body = formatted(rows, results)
    axes = gathered.study.axes
    return {
        "header": header,
        "better": [_better(title, axes, [*results.shown, *CORE.values()], judged_by(results.done)) for title in header],
        "rows": body,
        "values": [{axis: shown_value(row[axis]) for axis in axes} for row in rows.to_dict("records")],
        "best": best(rows, results),
    }


def _better(title: str, axes: list[str], quantities: list[Quantity], judged: Quantity) -> str:
    """Whether higher or lower values of a column are the better ones; empty where neither is."""
    if title in axes:
        return ""
    if title.startswith("minus "):
        return judged.better or HIGHER
    if title.startswith("rounds to ") or title in {"diverged", *(cost.title for cost in COSTS)}:
        return LOWER
    return next((q.better for q in quantities if q.better and q.title.removeprefix("test ") in title), HIGHER)


def runs_table(gathered: Gathered, measured: dict[int, Series]) -> dict[str, Any]:
    """One row per run, finished or not."""
    axes = gathered.study.axes
    values = [{axis: shown_value(value_of(run.experiment, axis)) for axis in axes} for run in gathered.runs]
    return {
        "header": [*axes, *RUN_COLUMNS],
        "better": [*("" for _ in axes), *RUN_COLUMNS.values()],
        "rows": [
            [*own.values(), *_cells(run, measured[id(run)])] for own, run in zip(values, gathered.runs, strict=True)
        ],
        "values": values,
    }


def _cells(run: Run, series: Series) -> list[str]:
    """Accuracies are in percent."""
    accuracy, loss = (_known(series[key]) for key in (Record.test_accuracy, Record.test_loss))
    done, of = len(run.records), run.experiment.rounds
    return [
        str(run.experiment.seed),
        run.status,
        f"{done} of {of}" if done < of else str(done),
        f"{accuracy[-LAST:].mean():.2f}" if len(accuracy) else "-",
        f"{accuracy.max():.2f}" if len(accuracy) else "-",
        f"{loss[-1]:.4f}" if len(loss) else "-",
        f"{series[SECONDS][-1]:.1f}" if done else "0.0",
        ((run.summary.weights_sha256 or "") if run.summary else "")[:12] or "-",
        run.name,
    ]


def _known(values: Any) -> Any:
    return values[np.isfinite(values)]


def pairs_table(gathered: Gathered) -> dict[str, Any]:
    """The differences from the baseline, paired by seed: as text, and as numbers for a plot."""
    results, axes = gathered.results, gathered.study.axes
    rows = ranked(table(results, gathered.trials), results)
    compared = [] if rows.empty else rows[rows["pairs"] > 0].to_dict("records")
    quantity = judged_by(results.done) if len(results.done) else None
    scale, form = form_of(quantity) if quantity else (1.0, ".2f")
    unit = "points" if quantity is None or quantity.unit == "%" else "loss"
    header = [*axes, f"difference ({unit})", "± 95 %", "p", "better in"]
    better = [*("" for _ in axes), (quantity and quantity.better) or HIGHER, LOWER, LOWER, HIGHER]
    return {
        "header": header,
        "better": better,
        "unit": "percentage points" if unit == "points" else unit,
        "rows": [_pair(row, axes, scale, form) for row in compared],
        "points": [
            {
                "label": in_words(row, axes) or "this",
                "line": in_words(row, line_axes(gathered.study)),
                "difference": scale * row["difference"],
                "half": scale * row["difference_interval"] if np.isfinite(row["difference_interval"]) else None,
                "text": with_interval(scale * row["difference"], scale * row["difference_interval"], form, "+"),
            }
            for row in compared
        ],
    }


def _pair(row: dict[Any, Any], axes: list[str], scale: float, form: str) -> list[str]:
    half, p = row["difference_interval"], row["p"]
    return [
        *(shown_value(row[axis]) for axis in axes),
        format(scale * row["difference"], f"+{form}"),
        format(scale * half, form) if np.isfinite(half) else "-",
        f"{p:.2g}" if np.isfinite(p) else "-",
        f"{row['better']} of {row['pairs']}",
    ]


def value_of(experiment: Experiment, axis: str) -> Any:
    """A setting of an experiment, or the name of one of its parts."""
    return getattr(experiment, axis) if axis in experiment.parts else experiment.settings().get(axis)


def shown_value(value: Any) -> str:
    """An axis value as it is shown and filtered; `-` where a run does not have it."""
    if value is None or pd.isna(value):
        return "-"
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
