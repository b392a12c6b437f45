"""Finished studies as compact data, two files each, from which tables and pictures are made again in seconds.

`fig3.csv` has one row per trial, `fig3.parquet` one per trial and round, with the columns that the figure needs. Both
name a trial by the study's axes and its seed, as the study's file does.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpns_ray.atomic_file import write_whole
from fedpns_ray.data import count_iid
from fedpns_ray.errors import InputError
from fedpns_ray.naming import setting_name
from fedpns_ray.records.record import FATES, Record
from fedpns_ray.records.summary import Summary, counts
from fedpns_ray.reporting.collecting import gather
from fedpns_ray.reporting.paper_figures import Triples
from fedpns_ray.reporting.tables import Results, columns_of, final
from fedpns_ray.study.study_file import Study, read_study

DONE, STATUS, SEED, TRIAL = "done", "status", "seed", "trial"
BY_NODE = "by_node"
"""Columns such as `labelled_by_node`: how often every node met a fate, in the order of the nodes."""


def study_of(path: Path) -> Study:
    return read_study(path, importing=False)


def keep(study: Study, sources: Sequence[Path], stem: Path, also: Sequence[str] = ()) -> None:
    """Write the two files of a study from its folders, or from other such files (given without their ending).

    Where several hold the same trial, a finished one is taken, from the first that has it. `also` names columns of
    trials that are kept besides those of every study.
    """
    found: dict[tuple[str, ...], tuple[pd.Series[Any], pd.DataFrame]] = {}
    for source in sources:
        trials, curves = _tables(study, source)
        for _, row in trials[trials[STATUS] == DONE].iterrows():
            found.setdefault(_key(study, row), (row, curves[curves[TRIAL] == row[TRIAL]]))
    wanted = [key for trial in study.trials if (key := _key(study, trial.experiment.settings())) in found]
    if not wanted:
        raise InputError(str(sources[0]), problem=f"holds no finished trial of {study.name}")
    rows = pd.DataFrame([found[key][0] for key in wanted])
    write_whole(stem.with_suffix(".csv"), rows[_columns(study, rows, also)].to_csv(index=False).encode())
    parts = [_compact(study, *found[key]) for key in wanted]
    buffer = io.BytesIO()
    pd.concat(parts).to_parquet(buffer, index=False, compression="zstd")
    write_whole(stem.with_suffix(".parquet"), buffer.getvalue())


def _tables(study: Study, source: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of trials and of rounds, as `fedpns study` leaves them."""
    if not source.is_dir():
        held = kept(study, source)
        return held.trials, held.curves
    gathered = gather([source])
    trials, by_name = gathered.results.trials.copy(), {run.name: run for run in gathered.runs}
    for fate in FATES:
        trials[f"{fate}_{BY_NODE}"] = [
            " ".join(map(str, times))
            if run and run.summary and (times := counts(run.summary, fate, run.experiment.nodes)) is not None
            else None
            for run in map(by_name.get, trials[TRIAL])
        ]
    return trials, gathered.results.curves


def _key(study: Study, row: Any) -> tuple[str, ...]:
    """What names a trial in a study."""
    return (*(_text(row.get(axis)) for axis in study.axes), _text(row[SEED]))


def _text(value: Any) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:g}" if isinstance(value, (int, float, np.number)) else str(value)


def _columns(study: Study, rows: pd.DataFrame, also: Sequence[str]) -> list[str]:
    spent = [f"{fate}_{kind}" for fate in FATES for kind in ("iid", "other")]
    # only Optimal Aggregation's own figure shows single nodes
    nodes = [f"{fate}_{BY_NODE}" for fate in FATES] if study.trials[0].experiment.selection == "half" else []
    wanted = [
        *study.axes, SEED, STATUS, *(final(key) for key in columns_of(study)), Summary.best_accuracy,
        *(f"rounds_to_{target:g}" for target in study.targets), *spent, *nodes,
        Summary.seconds, *also, Summary.weights_sha256, "population_sha256",
    ]  # fmt: skip
    return [column for column in wanted if column in rows]


def _compact(study: Study, row: pd.Series[Any], curves: pd.DataFrame) -> pd.DataFrame:
    keys = [key for key in _drawn(study) if key in curves]
    data = curves[[Record.round, *keys]].astype({Record.round: "int16", **dict.fromkeys(keys, "float32")})
    for axis in (SEED, *reversed(study.axes)):
        data.insert(0, axis, row.get(axis))
    return data


def _drawn(study: Study) -> list[str]:
    """The numbers of a round that pictures need: what is plotted, and what it is plotted over."""
    return [*columns_of(study), *({study.plot.over} - {Record.round})]


# --- reading ---------------------------------------------------------------------------------------------------------


def kept(study: Study, stem: Path) -> Results:
    """The results of a study as its two files hold them; trials that they do not hold are unfinished."""
    trials, curves = pd.read_csv(stem.with_suffix(".csv")), pd.read_parquet(stem.with_suffix(".parquet"))
    by_key = {_key(study, row): row for row in trials.to_dict("records")}
    rows = []
    for trial in study.trials:
        settings = trial.experiment.settings()
        held = by_key.get(_key(study, settings), {})
        head = {TRIAL: trial.name, "setting": setting_name(trial.experiment), STATUS: "unfinished"}
        rows.append(head | {axis: settings.get(axis) for axis in study.axes} | settings | held)
    table = pd.DataFrame(rows)
    names = {_key(study, row): (row[TRIAL], row["setting"]) for row in rows}
    keys = [_key(study, row) for row in curves[[*study.axes, SEED]].to_dict("records")]
    for place, column in enumerate((TRIAL, "setting")):
        curves[column] = [names[key][place] if key in names else "" for key in keys]
    return Results(study, table, curves.astype({key: float for key in _drawn(study) if key in curves}))


def kept_triples(results: Results, strategy: str) -> Triples | None:
    """How often each node met each fate, as the mean over seeds; None if the files do not say."""
    columns = {fate: f"{fate}_{BY_NODE}" for fate in FATES}
    if not set(columns.values()) <= set(results.done):
        return None
    mine = results.done[results.done["strategy"] == strategy].dropna(subset=list(columns.values()))
    if mine.empty:
        return None
    times = {
        fate: np.mean([np.array(text.split(), dtype=float) for text in mine[column]], axis=0)
        for fate, column in columns.items()
    }
    experiment = next(trial.experiment for trial in results.study.trials if trial.name in set(mine[TRIAL]))
    return Triples(times, count_iid(experiment))
