"""The page: one HTML file that opens anywhere, offline, with everything in it.

Python says what is true (means, intervals, pairs, the theory); page.js only draws and filters it.
"""

from __future__ import annotations

import base64
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
from numpy.typing import NDArray
from scipy import stats

from fedpns_ray import __version__
from fedpns_ray.core.theory import theory
from fedpns_ray.data import DATA_SETTINGS, build_population
from fedpns_ray.data.sources import IMAGES, Samples, load
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment, setting_name
from fedpns_ray.reporting.collecting import Gathered, Run
from fedpns_ray.reporting.colours import COLOURS
from fedpns_ray.reporting.curves import AXIS_TITLES, BANDS, SCALES, label_of, line_axes
from fedpns_ray.reporting.published import published
from fedpns_ray.reporting.tables import formatted, table

SELECTION_BYTES = 1_500_000
"""What the selection of all shown runs may take, before base64: two bytes a node and round."""
MOST_NODES = 1000
"""Above it a node is less than a pixel, and FedPNS records no probabilities."""
RECORDED = (
    "test_accuracy", "test_loss", "train_loss", "iid_probability", "gradient_norm_iid", "gradient_norm_other",
    "gradient_norm_of_mean", "weight_divergence",
)  # fmt: skip
DASHES = ("solid", "dash", "dashdot")
"""Where there are more lines than colours."""
FATE_CODES = {"drawn": 1, "labelled": 2, "excluded": 3}

Series = dict[str, NDArray[np.float64]]


def write_page(gathered: Gathered, path: Path, command: str) -> None:
    """All or nothing: whoever has the page open never sees half of it."""
    if path.is_dir() or not path.parent.exists():
        raise InputError(f"out: {path} is not allowed; it must be a file in a folder that is there")
    content = page(gathered, command).encode()
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)


def page(gathered: Gathered, command: str) -> str:
    from plotly.offline import get_plotlyjs

    content = {
        "title": html.escape(gathered.study.title),
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
    lines = line_axes(study)
    panel_axes = [axis for axis in study.axes if axis not in lines]
    settings = [_setting(group, measured, lines, panel_axes, study.axes) for group in groups.values()]
    looks = zip(dict.fromkeys(s["line"] for s in settings), itertools.cycle(itertools.product(DASHES, COLOURS)))
    shown, left_out = chosen(groups.values())
    if left_out:
        notes.append(left_out)
    populations, no_data = _populations(shown)
    notes += no_data
    return {
        "title": study.title,
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "notes": notes,
        "axes": study.axes,
        "titles": AXIS_TITLES,
        "bands": len({s["line"] for s in settings}) <= BANDS,
        "lines": [{"label": label, "colour": colour, "dash": dash} for label, (dash, colour) in looks],
        "settings": settings,
        "runs": [
            _run(run, k, measured[id(run)], study.axes) for k, group in enumerate(groups.values()) for run in group
        ],
        "table": _table(gathered),
        "baseline": ", ".join(str(value) for value in study.baseline.values()),
        "selection": [_selection(run, k) for k, run in shown],
        "populations": populations,
        "reproduce": _reproduce(gathered, command),
        "versions": _versions(gathered.runs),
    }


# --- curves ----------------------------------------------------------------------------------------------------------


def run_series(run: Run) -> Series:
    """Everything that is drawn over rounds, one value a round."""
    records = run.records
    found = {
        key: np.array([record.get(key) for record in records], dtype=float) * SCALES.get(key, 1.0) for key in RECORDED
    }
    found |= theory(records, run.experiment.nodes)
    found["seconds"] = np.cumsum([record["seconds"] for record in records])
    found["megabytes"] = 1e-6 * np.cumsum([_transmitted(record, run.parameters) for record in records])
    found["simulated"] = np.cumsum([record.get("simulated_seconds", np.nan) for record in records])
    return found


def _transmitted(record: dict[str, Any], parameters: int | None) -> float:
    """Bytes of a round as recorded; in older records, the model to every drawn node and back from every node that sent."""
    if "bytes_up" in record:
        return float(record["bytes_up"] + record["bytes_down"])
    models = len(record["drawn"]) + len(record["aggregated"]) + len(record["excluded"])
    return 4.0 * models * (parameters or np.nan)


def means(runs: Sequence[Series]) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Mean over seeds and half its 95 % interval, as far as all of them go."""
    length = min(len(series["seconds"]) for series in runs)
    found = {}
    for key in runs[0]:
        values = np.stack([series[key][:length] for series in runs])
        half = np.full(length, np.nan)
        if len(runs) > 2:
            half = stats.t.ppf(0.975, len(runs) - 1) * values.std(axis=0, ddof=1) / np.sqrt(len(runs))
        found[key] = values.mean(axis=0), half
    return found


def _setting(
    group: Sequence[Run], measured: dict[int, Series], lines: list[str], panel_axes: list[str], axes: list[str]
) -> dict[str, Any]:
    begun = [run for run in group if run.records]
    finished = [run for run in begun if run.finished]
    taken = finished or [run for run in begun if not run.diverged] or begun
    experiment = group[0].experiment
    settings = _settings(experiment, axes)
    found = means([measured[id(run)] for run in taken]) if taken else {}
    return {
        "line": label_of(settings, lines) or experiment.label,
        "panel": label_of(settings, panel_axes),
        "values": {axis: _text(settings.get(axis)) for axis in axes},
        "seeds": [run.experiment.seed for run in taken],
        "finished": len(finished),
        "series": {
            key: {"mean": compact(mean), **({"half": compact(half, 3)} if not np.isnan(half).all() else {})}
            for key, (mean, half) in found.items()
            if not np.isnan(mean).all()
        },
        "published": _published(experiment, max((len(run.records) for run in taken), default=0)),
        "config": experiment.to_yaml(),
        "flags": run_flags(experiment),
    }


def _settings(experiment: Experiment, axes: Iterable[str]) -> dict[str, Any]:
    """Of an experiment, with the names of its parts where runs differ in them."""
    return experiment.settings() | {axis: getattr(experiment, axis) for axis in axes if axis in experiment.parts}


def _published(experiment: Experiment, rounds: int) -> dict[str, Any]:
    found = {}
    for key in RECORDED:
        curve = published(experiment, key)
        if curve is not None:
            curve = curve[curve.index <= rounds] * SCALES.get(key, 1.0)
            found[key] = {"round": curve.index.tolist(), "value": compact(np.array(curve, dtype=np.float64))}
    return found


def compact(values: NDArray[np.float64], digits: int = 4) -> list[float | None]:
    """As short as a picture allows; what is no number is null. An accuracy keeps its hundredths."""
    return [
        float(f"{value:.{digits}g}") if finite else None
        for value, finite in zip(values.tolist(), np.isfinite(values).tolist(), strict=True)
    ]


def _run(run: Run, setting: int, series: Series, axes: list[str]) -> dict[str, Any]:
    accuracy, loss = series["test_accuracy"], series["test_loss"]
    tested, lost = accuracy[np.isfinite(accuracy)], loss[np.isfinite(loss)]
    return {
        "name": run.path.name,
        "setting": setting,
        "seed": run.experiment.seed,
        "status": run.status,
        "rounds": len(run.records),
        "of": run.experiment.rounds,
        "final_accuracy": round(float(tested[-5:].mean()), 3) if len(tested) else None,
        "best_accuracy": round(float(tested.max()), 3) if len(tested) else None,
        "last_loss": round(float(lost[-1]), 5) if len(lost) else None,
        "seconds": round(float(series["seconds"][-1]), 2) if len(run.records) else 0,
        "weights": ((run.summary or {}).get("weights_sha256") or "")[:12],
        "accuracy": compact(accuracy),
        "loss": compact(loss),
    }


def _table(gathered: Gathered) -> dict[str, Any]:
    """A row a setting with finished runs, as `fedpns study` prints it, and the numbers behind its pairs."""
    rows = table(gathered.results, gathered.trials)
    if rows.empty:
        return {"header": [], "rows": [], "pairs": []}
    header, body = formatted(rows, gathered.study)
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
    """An axis value as it is read and filtered by; `-` where a run does not have it."""
    if value is None or value != value:
        return "-"
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


# --- the selection and the data --------------------------------------------------------------------------------------


def chosen(groups: Iterable[Sequence[Run]]) -> tuple[list[tuple[int, Run]], str]:
    """Runs whose nodes are shown, with the number of their setting: the first seed of every setting, then the second …"""
    ranked = [
        (rank, k, run)
        for k, group in enumerate(groups)
        for rank, run in enumerate(sorted((r for r in group if r.records), key=lambda r: not r.finished))
    ]
    ranked.sort(key=lambda entry: entry[:2])
    kept: list[tuple[int, Run]] = []
    spent = 0
    for _, k, run in ranked:
        size = 2 * len(run.records) * run.experiment.nodes
        if run.experiment.nodes <= MOST_NODES and spent + size <= SELECTION_BYTES:
            spent += size
            kept.append((k, run))
    left = len(ranked) - len(kept)
    kept.sort(key=lambda entry: (entry[0], entry[1].experiment.seed))
    if not left:
        return kept, ""
    return kept, (
        f"The selection and the data are shown of {len(kept)} of {len(ranked)} runs, to keep the page small: first one "
        f"seed of every setting, then further ones; none with more than {MOST_NODES} nodes. Curves and tables hold all."
    )


def _selection(run: Run, setting: int) -> dict[str, Any]:
    """Every node in every round: its fate, and its probability in 255 steps of the largest."""
    rounds, nodes = len(run.records), run.experiment.nodes
    fates = np.zeros((rounds, nodes), dtype=np.uint8)
    for row, record in zip(fates, run.records, strict=True):
        for fate, code in FATE_CODES.items():
            row[record[fate]] = code
        row[[node for node in record["excluded"] if node not in record["labelled"]]] = 4
    found: dict[str, Any] = {
        "setting": setting,
        "seed": run.experiment.seed,
        "name": run.path.name,
        "nodes": nodes,
        "iid": run.iid_nodes,
        "rounds": rounds,
        "fates": _base64(fates),
        "population": _population_key(run.experiment),
        "share": compact(np.array([record.get("iid_probability") for record in run.records], dtype=float)),
    }
    if run.records and all(record.get("probability") is not None for record in run.records):
        p = np.array([record["probability"] for record in run.records], dtype=float)
        found["probability"] = _base64(np.rint(255 * p / p.max()).astype(np.uint8))
        found["largest"] = float(f"{p.max():.5g}")
    return found


def _base64(array: NDArray[np.uint8]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _population_key(experiment: Experiment) -> str:
    settings = experiment.settings()
    return ", ".join(f"{key} {settings[key]}" for key in DATA_SETTINGS if key in settings)


def _populations(shown: Sequence[tuple[int, Run]]) -> tuple[dict[str, Any], list[str]]:
    """Who holds what, computed again once for each distinct population; a note where the data set is not at hand."""
    samples: dict[str, Samples | None] = {}
    absent: dict[str, str] = {}
    found: dict[str, Any] = {}
    for _, run in shown:
        key, dataset = _population_key(run.experiment), run.experiment.dataset
        if key in found or dataset in absent:
            continue
        try:
            if dataset not in samples:
                samples[dataset] = load(dataset) if dataset in IMAGES else None
            population = build_population(run.experiment, samples[dataset])
        except InputError as error:
            absent[dataset] = f"The labels on each node of {dataset} are not shown: {error}"
            continue
        found[key] = {
            "histogram": population.histogram.tolist(),
            "q_dif": compact(population.q_dif),
            "sizes": population.sizes.tolist(),
        }
    return found, list(absent.values())


# --- how to do it again ----------------------------------------------------------------------------------------------


def run_flags(experiment: Experiment) -> str:
    """`fedpns run` with every setting in full."""
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
            what = "the study: finishes what is missing; what is finished is read, not run again"
            commands = source.commands or (f"fedpns study {folder}/study.yaml --out {folder}",)
            steps.append({"what": what, "command": "\n".join(commands)})
            steps.append({"what": "its file, study.yaml", "command": source.study_file})
        else:
            where = f"{folder}/NAME" if source.kind == "runs" else folder
            steps.append({"what": "a run, to the same bits", "command": f"fedpns run {where}/config.yaml --out NEW"})
    steps.append({"what": "this page", "command": command})
    return steps


def _versions(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Distinct sets of versions, with how many runs were made by each."""
    kinds = pd.Series([json.dumps((run.summary or {}).get("versions", {"": "not finished"})) for run in runs])
    return [json.loads(str(kind)) | {"runs": str(count)} for kind, count in kinds.value_counts().items()]
