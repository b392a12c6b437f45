"""The table of a study as people read it: means with intervals, the paper's values in brackets."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.records.record import CORE, COSTS, Record
from fedpns_ray.reporting.tables import Results, columns_of, judged_by

ACCURACY = CORE[Record.test_accuracy]


def markdown(rows: pd.DataFrame, results: Results) -> str:
    """With the study's label above it, if there is one."""
    header, body = formatted(rows, results)
    above = f"**{results.label}**\n\n" if results.label else ""
    lines = [" | ".join(header), " | ".join("---" if name in results.study.axes else "---:" for name in header)]
    return above + "\n".join(f"| {line} |" for line in [*lines, *(" | ".join(cells) for cells in body)]) + "\n"


def formatted(rows: pd.DataFrame, results: Results) -> tuple[list[str], list[list[str]]]:
    """Column titles and cells. Empty columns are left out."""
    study = results.study
    columns: dict[str, list[str]] = {key: [_plain(value) for value in rows[key]] for key in study.axes}
    columns["seeds"] = [str(count) for count in rows["seeds"]]
    columns["diverged"] = [str(count) if count else "-" for count in rows["diverged"]]
    declared = {quantity.key: quantity for quantity in (*results.shown, ACCURACY, judged_by(results.done))}
    for key in columns_of(study, results.done):
        scale, form = form_of(declared[key])
        ours = [with_interval(scale * value, scale * half, form) for value, half in _pairs(rows, key)]
        paper = [_number(value if value is None else scale * value, form) for value in rows[f"{key}_published"]]
        _add(columns, f"final {declared[key].title.removeprefix('test ')}", ours, paper)
    against = ", ".join(str(value) for value in study.baseline.values())
    scale, form = form_of(judged_by(results.done))
    columns[f"minus {against}"] = [
        with_interval(scale * value, scale * half, form, "+") for value, half in _pairs(rows, "difference")
    ]
    for target in study.targets:
        key = f"rounds_to_{target:g}"
        cells = (rows[key], rows[f"{key}_interval"], rows[f"reached_{target:g}"], rows["seeds"])
        ours = [_rounds(*cell) for cell in zip(*cells, strict=True)]
        _add(columns, f"rounds to {target:.0%}", ours, [_plain(value, ".0f") for value in rows[f"{key}_published"]])
    if not rows[Record.simulated_seconds].isna().all():  # with a device model, what a method costs is a result
        for cost in COSTS:
            pairs = _pairs(rows, cost.key)
            columns[cost.title] = [with_interval(cost.scale * v, cost.scale * half, ".4g") for v, half in pairs]
    kept = {title: cells for title, cells in columns.items() if title in study.axes or set(cells) != {"-"}}
    return list(kept), [list(cells) for cells in zip(*kept.values(), strict=True)]


def form_of(quantity: Quantity) -> tuple[float, str]:
    """The factor by which a quantity is multiplied, and the format in which it is shown."""
    return quantity.scale, ".2f" if quantity.unit == "%" else ".4f"


def _add(columns: dict[str, list[str]], title: str, ours: list[str], paper: list[str]) -> None:
    if set(paper) == {"-"}:
        columns[title] = ours
    else:
        columns[f"{title} (published)"] = [
            f"{mine} ({theirs})" if theirs != "-" else mine for mine, theirs in zip(ours, paper, strict=True)
        ]


def _pairs(rows: pd.DataFrame, key: str) -> list[tuple[float, float]]:
    return list(zip(rows[key].astype(float), rows[f"{key}_interval"].astype(float), strict=True))


def _missing(value: Any) -> bool:
    return value is None or value != value


def _plain(value: Any, form: str = "") -> str:
    return "-" if _missing(value) else f"{value:g}" if isinstance(value, float) and not form else format(value, form)


def _number(value: float | None, form: str) -> str:
    return "-" if _missing(value) else format(value, form)


def with_interval(value: float, half: float, form: str, sign: str = "") -> str:
    number = _number(value, sign + form)
    return number if _missing(value) or _missing(half) else f"{number} ± {_number(half, form)}"


def _rounds(value: Any, half: Any, reached: int, seeds: int) -> str:
    """The mean over the seeds that reached the target, and how many did, if not all."""
    if not reached:
        return "-"
    return with_interval(value, half, ".1f") + (f", {reached} of {seeds}" if reached < seeds else "")
