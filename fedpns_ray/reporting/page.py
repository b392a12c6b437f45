"""The page: one HTML file that opens anywhere, offline, with everything in it.

Python computes what is true (means, intervals, pairs, the theory); page.js only draws and filters it.
"""

from __future__ import annotations

import datetime
import html
import itertools
import json
import shlex
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpns_ray import __version__
from fedpns_ray.atomic_file import write_whole
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.experiment import Experiment, setting_name
from fedpns_ray.records.file_names import CONFIG, STUDY
from fedpns_ray.records.record import Record
from fedpns_ray.records.summary import LAST
from fedpns_ray.reporting.collecting import Gathered
from fedpns_ray.reporting.colours import COLOURS
from fedpns_ray.reporting.curves import BANDS, label_of, line_axes
from fedpns_ray.reporting.formatting import formatted
from fedpns_ray.reporting.runs import Run
from fedpns_ray.reporting.selection_map import chosen, populations, selection
from fedpns_ray.reporting.series import (
    SECONDS,
    THEORY,
    Series,
    compact,
    compacted,
    published_series,
    quantities_of,
    run_series,
)
from fedpns_ray.reporting.tables import table
from fedpns_ray.reporting.targets import refuse_foreign

DASHES = ("solid", "dash", "dashdot")
"""Styles for when there are more lines than colours."""
SINGLES = (Record.test_accuracy, Record.test_loss)
"""Quantities whose individual runs can be shown."""


def write_page(gathered: Gathered, path: Path, command: str) -> None:
    """Write the page, all or nothing: a reader who has it open never sees half of it."""
    refuse_foreign(path, ".html")
    write_whole(path, page(gathered, command).encode(errors="replace"))


def page(gathered: Gathered, command: str) -> str:
    from plotly.offline import get_plotlyjs

    content = {
        "title": html.escape(" - ".join(filter(None, [gathered.study.title, gathered.label]))),
        "css": _own("page.css"),
        "data": embedded(page_data(gathered, command)),
        "plotly": get_plotlyjs(),
        "script": _own("page.js"),
    }
    parts = _own("page.html").split("%%")  # text, name, text, name, …
    return "".join(content[part] if k % 2 else part for k, part in enumerate(parts))


@cache
def _own(name: str) -> str:
    return files("fedpns_ray.reporting").joinpath(name).read_text(encoding="utf-8")


def embedded(data: Any) -> str:
    """JSON that no name can break out of."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(gathered: Gathered, command: str) -> dict[str, Any]:
    study, notes = gathered.study, list(gathered.notes)
    groups: dict[str, list[Run]] = {}
    for run in gathered.runs:
        groups.setdefault(setting_name(run.experiment), []).append(run)
    measured = {id(run): run_series(run) for run in gathered.runs}
    quantities = quantities_of(gathered.runs)
    settings = [_setting(gathered, group, measured, quantities) for group in groups.values()]
    looks = zip(dict.fromkeys(s["line"] for s in settings), itertools.cycle(itertools.product(DASHES, COLOURS)))
    shown, left_out = chosen(groups.values())
    held, no_data = populations(shown)
    return {
        "title": study.title,
        "standing": gathered.label,
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "notes": [*notes, *filter(None, [left_out]), *no_data],
        "axes": study.axes,
        "titles": {quantity.key: quantity.label for quantity in quantities},
        "percent": [quantity.key for quantity in quantities if quantity.unit == "%"],
        "theory": THEORY,
        "bands": len({s["line"] for s in settings}) <= BANDS,
        "lines": [{"label": label, "colour": colour, "dash": dash} for label, (dash, colour) in looks],
        "settings": settings,
        "runs": [_run(run, k, measured[id(run)]) for k, group in enumerate(groups.values()) for run in group],
        "table": _table(gathered),
        "baseline": ", ".join(str(value) for value in study.baseline.values()),
        "selection": [selection(run, k) for k, run in shown],
        "populations": held,
        "reproduce": _reproduce(gathered, command),
        "versions": _versions(gathered.runs),
    }


# --- settings and runs -----------------------------------------------------------------------------------------------


def _setting(
    gathered: Gathered, group: Sequence[Run], measured: dict[int, Series], quantities: Sequence[Quantity]
) -> dict[str, Any]:
    axes, lines = gathered.study.axes, line_axes(gathered.study)
    begun = [run for run in group if run.records]
    finished = [run for run in begun if run.finished]
    taken = finished or [run for run in begun if not run.diverged] or begun
    experiment = group[0].experiment
    settings = _settings(experiment, axes)
    return {
        "line": label_of(settings, lines) or experiment.label,
        "panel": label_of(settings, [axis for axis in axes if axis not in lines]),
        "values": {axis: _text(settings.get(axis)) for axis in axes},
        "seeds": [run.experiment.seed for run in taken],
        "series": compacted([measured[id(run)] for run in taken]),
        "published": published_series(experiment, quantities, max((len(run.records) for run in taken), default=0)),
        "config": experiment.to_yaml(),
        "flags": run_flags(experiment),
    }


def _settings(experiment: Experiment, axes: Iterable[str]) -> dict[str, Any]:
    """The settings of an experiment, with the names of its parts where runs differ in them."""
    return experiment.settings() | {axis: getattr(experiment, axis) for axis in axes if axis in experiment.parts}


def _run(run: Run, setting: int, series: Series) -> dict[str, Any]:
    accuracy, loss = (series[key][np.isfinite(series[key])] for key in SINGLES)
    return {
        "name": run.name,
        "setting": setting,
        "seed": run.experiment.seed,
        "status": run.status,
        "rounds": len(run.records),
        "of": run.experiment.rounds,
        "final": round(float(accuracy[-LAST:].mean()), 3) if len(accuracy) else None,
        "best": round(float(accuracy.max()), 3) if len(accuracy) else None,
        "loss": round(float(loss[-1]), 5) if len(loss) else None,
        "seconds": round(float(series[SECONDS][-1]), 2) if len(run.records) else 0,
        "weights": (run.summary.weights_sha256 or "")[:12] if run.summary else "",
        "curves": {key: compact(series[key]) for key in SINGLES},
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def _table(gathered: Gathered) -> dict[str, Any]:
    """One row per setting with finished runs, as `fedpns study` prints it, and the numbers behind its pairs."""
    rows = table(gathered.results, gathered.trials)
    if rows.empty:
        return {"header": [], "rows": [], "pairs": []}
    header, body = formatted(rows, gathered.results)
    axes = gathered.study.axes
    compared = rows[rows["pairs"] > 0]
    return {
        "header": header,
        "rows": body,
        "values": [{axis: _text(row[axis]) for axis in axes} for row in rows.to_dict("records")],
        "pairs": [_pair(row, axes) for row in compared.to_dict("records")],
    }


def _pair(row: dict[Any, Any], axes: list[str]) -> dict[str, Any]:
    numbers = {
        key: round(100 * row[key], 3) if np.isfinite(row[key]) else None
        for key in ("difference", "difference_interval")
    }
    return numbers | {
        "label": label_of(row, axes) or "this",
        "values": {axis: _text(row[axis]) for axis in axes},
        "p": float(f"{row['p']:.3g}") if np.isfinite(row["p"]) else None,
        "better": int(row["better"]),
        "pairs": int(row["pairs"]),
    }


def _text(value: Any) -> str:
    """An axis value as it is shown and filtered; `-` where a run does not have it."""
    if value is None or value != value:
        return "-"
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


# --- how to reproduce it ---------------------------------------------------------------------------------------------


def run_flags(experiment: Experiment) -> str:
    """`fedpns run` with every setting written out."""
    words = ["fedpns", "run"]
    for key, value in experiment.settings().items():
        known = key in Experiment.model_fields
        words += [f"--{key.replace('_', '-')}", str(value)] if known else ["--set", f"{key}={value}"]
    return shlex.join(words)


def _reproduce(gathered: Gathered, command: str) -> list[dict[str, str]]:
    steps = []
    for source in gathered.sources:
        folder = shlex.quote(source.place)
        if source.kind == "study":
            what = "the study: runs what is missing; finished trials are read, not run again"
            commands = source.commands or (f"fedpns study {folder}/{STUDY} --out {folder}",)
            steps.append({"what": what, "command": "\n".join(commands)})
            steps.append({"what": f"its file, {STUDY}", "command": source.study_file})
        else:
            where = f"{folder}/NAME" if source.kind == "runs" else folder
            steps.append({"what": "a run, to the same bits", "command": f"fedpns run {where}/{CONFIG} --out NEW"})
    steps.append({"what": "this page", "command": command})
    return steps


def _versions(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Distinct sets of versions, with the number of runs made with each."""
    unknown = {"": "not finished"}
    kinds = pd.Series([json.dumps(run.summary.versions if run.summary else unknown) for run in runs])
    return [json.loads(str(kind)) | {"runs": str(count)} for kind, count in kinds.value_counts().items()]
