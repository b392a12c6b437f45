"""The page: one HTML file that opens anywhere, offline, with everything in it.

Python computes what is true (means, intervals, pairs, the theory); page.js only draws and filters it.
"""

from __future__ import annotations

import datetime
import html
import json
import shlex
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from fedpns_ray import __version__
from fedpns_ray.atomic_file import write_whole
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import setting_name
from fedpns_ray.records.file_names import CONFIG, STUDY
from fedpns_ray.records.record import Record
from fedpns_ray.reporting.collecting import Gathered
from fedpns_ray.reporting.curves import BANDS, line_axes
from fedpns_ray.reporting.judgement import judged
from fedpns_ray.reporting.names import BARE, SYMBOLS, in_words, meaning
from fedpns_ray.reporting.page_tables import pairs_table, results_table, runs_table, shown_value
from fedpns_ray.reporting.palette import FATES as FATE_COLOURS
from fedpns_ray.reporting.palette import looks
from fedpns_ray.reporting.report_card import WHAT as CARD_WHAT
from fedpns_ray.reporting.report_card import report_card
from fedpns_ray.reporting.runs import Run
from fedpns_ray.reporting.selection_map import FATE_NAMES, chosen, populations, selection
from fedpns_ray.reporting.selection_means import selection_means
from fedpns_ray.reporting.series import (
    THEORY,
    Series,
    bounds,
    compact,
    compacted,
    published_series,
    quantities_of,
    run_series,
)
from fedpns_ray.reporting.tables import table
from fedpns_ray.reporting.targets import refuse_foreign
from fedpns_ray.reporting.verdict import FEW, verdict

SCRIPTS = (
    "page.js",
    "page_take.js",
    "page_tables.js",
    "page_curves.js",
    "page_selection.js",
    "page_run.js",
    "page_theory.js",
    "page_end.js",
)
"""The parts of the page's script, in their order."""
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
        "script": "\n".join(map(_own, SCRIPTS)),
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
    shown, left_out = chosen(groups.values())
    held, no_data = populations(shown)
    means = [selection_means(group, k) for k, group in enumerate(groups.values())]
    return {
        "title": study.title,
        "standing": gathered.label,
        "answers": _answers(gathered),
        "warning": _warning(settings),
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "notes": [*notes, *filter(None, [left_out]), *no_data],
        "axes": study.axes,
        "glossary": [
            {"name": _spelled(axis), "meaning": what}
            for axis in study.axes
            if axis not in BARE and (what := meaning(axis))
        ],
        "titles": {quantity.key: quantity.label for quantity in quantities},
        "units": {quantity.key: quantity.unit for quantity in quantities if quantity.unit},
        "bounds": {quantity.key: bounds(quantity) for quantity in quantities},
        "theory": THEORY,
        "bands": len({s["line"] for s in settings}) <= BANDS,
        "lines": [
            {"label": name, "colour": look.colour, "dark": look.on_dark, "dash": look.dash}
            for name, look in looks(setting["line"] for setting in settings).items()
        ],
        "settings": settings,
        "runs": [_run(run, k, measured[id(run)]) for k, group in enumerate(groups.values()) for run in group],
        "table": results_table(gathered),
        "single": runs_table(gathered, measured),
        "pairs": pairs_table(gathered),
        "card": report_card(gathered.results.trials, study.axes)._asdict() | {"what": CARD_WHAT},
        "baseline": ", ".join(str(value) for value in study.baseline.values()),
        "fates": {"names": FATE_NAMES, "colours": FATE_COLOURS},
        "means": [found for found in means if found],
        "selection": [selection(run, k) for k, run in shown],
        "populations": held,
        "reproduce": _reproduce(gathered, command),
        "versions": _versions(gathered.runs),
    }


def _answers(gathered: Gathered) -> list[str]:
    """What the study found, first: its verdict, and what became of its claims."""
    results = gathered.results
    found = "" if gathered.study.search else verdict(results, table(results, gathered.trials))
    return [*filter(None, [found]), *map(str, judged(results))]


def _warning(settings: Sequence[dict[str, Any]]) -> str:
    """Below 5 seeds an interval says little, and looks as if it said much."""
    few = [setting for setting in settings if 0 < len(setting["seeds"]) < FEW]
    if not few:
        return ""
    all_of = "The setting has" if len(settings) == 1 else "The settings have"
    has = "has" if len(few) == 1 else "have"
    which = all_of if len(few) == len(settings) else f"{len(few)} of {len(settings)} settings {has}"
    most = max(len(setting["seeds"]) for setting in few)
    seeds = (
        f"{most} seed{'s' if most > 1 else ''}" if len({len(s["seeds"]) for s in few}) == 1 else f"at most {most} seeds"
    )
    return f"{which} {seeds}: with fewer than {FEW}, means and intervals say little."


def _spelled(axis: str) -> str:
    return f"{axis} ({SYMBOLS[axis]})" if axis in SYMBOLS else axis


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
        "line": in_words(settings, lines) or experiment.label,
        "panel": in_words(settings, [axis for axis in axes if axis not in lines]),
        "values": {axis: shown_value(settings.get(axis)) for axis in axes},
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
    return {
        "setting": setting,
        "seed": run.experiment.seed,
        "status": run.status,
        "curves": {key: compact(series[key]) for key in SINGLES},
    }


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
