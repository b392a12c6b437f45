"""The tables of a study: study.csv (one row per trial), curves.parquet (one per trial and round), means over seeds."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedpns_ray.core.run import Record
from fedpns_ray.experiment import Experiment, setting_name
from fedpns_ray.records.lines import whole_records
from fedpns_ray.records.storage import Storage
from fedpns_ray.records.summary import LAST, LEDGER, diverged_in, is_over, parse_summary, rounds_to
from fedpns_ray.reporting.published import published
from fedpns_ray.reporting.statistics import Paired, interval, paired
from fedpns_ray.study.study_file import PLOTTED, Study, Trial

FATES = ("drawn", "labelled", "excluded")
COSTS = {"bytes_up": ("MB up", 1e6), "bytes_down": ("MB down", 1e6), "simulated_seconds": ("simulated s", 1.0)}
"""Column titles and units of what a run has cost."""


@dataclass(frozen=True)
class Results:
    """Of the trials of a study, in its order."""

    study: Study
    trials: pd.DataFrame
    """One row per trial: settings, status, what came out."""
    curves: pd.DataFrame
    """One row per trial and round."""

    def write(self, storage: Storage) -> None:
        storage.write("study.yaml", self.study.text)
        storage.write("study.csv", self.trials.to_csv(index=False).encode())
        buffer = io.BytesIO()
        self.curves.to_parquet(buffer, index=False)
        storage.write("curves.parquet", buffer.getvalue())


def collect(study: Study, trials: Sequence[Trial], storage: Storage, errors: dict[str, str]) -> Results:
    """Read every trial's folder; what is not finished gets a row without results."""
    names = [trial.name for trial in trials]
    summaries = [parse_summary(content) for content in storage.read_all(f"trials/{n}/summary.json" for n in names)]
    over = [name for name, summary in zip(names, summaries, strict=True) if summary]
    lines = dict(zip(over, storage.read_all(f"trials/{name}/rounds.jsonl" for name in over), strict=True))
    found = [
        (trial, summary, whole_records(lines.get(trial.name) or b""))
        for trial, summary in zip(trials, summaries, strict=True)
    ]
    return tabulate(study, found, errors)


Found = tuple[Trial, dict[str, Any] | None, Sequence[Record]]
"""A trial, its summary if it is finished, its records."""


def tabulate(study: Study, found: Sequence[Found], errors: dict[str, str]) -> Results:
    """One row per trial, and one row per trial and round."""
    rows, curves = [], []
    for trial, summary, records in found:
        row = _row(study, trial, summary, records, errors.get(trial.name, ""))
        rows.append(row)
        axes = {_column(key): row[key] for key in ("trial", "setting", *study.axes, "seed")}
        curves += [axes | _point(record) for record in records]
    named = [_column(key) for key in study.axes]
    columns = ["trial", "setting", *named, "seed", "round", *PLOTTED, *FATES, "aggregated", "seconds", *LEDGER]
    return Results(study, pd.DataFrame(rows), pd.DataFrame(curves, columns=columns))


def _column(axis: str) -> str:
    """An axis may be named as a quantity is: `expectation`, the reading of Algorithm 1, and its value in every round."""
    return f"{axis}_setting" if axis in PLOTTED else axis


def _row(
    study: Study, trial: Trial, summary: dict[str, Any] | None, records: Sequence[Record], error: str
) -> dict[str, Any]:
    """The columns are the same whatever became of the trial."""
    settings = trial.experiment.settings()
    over = is_over(summary, trial.experiment.rounds)
    diverged = diverged_in(summary) if over and summary else None
    finished = over and diverged is None
    head = {
        "trial": trial.name,
        "setting": setting_name(trial.experiment),
        "status": "done" if finished else "diverged" if diverged else "failed" if error else "unfinished",
        **{key: settings.get(key) for key in study.axes},
        "seed": trial.experiment.seed,
    }
    known = summary if over and summary is not None else {}
    records = records if finished else ()
    population, nodes = known.get("population", {}), known.get("nodes", {})
    iid = population.get("iid_nodes")
    return {
        **head,
        **{f"final_{key.removeprefix('test_')}": _final(records, key) for key in PLOTTED},
        "best_accuracy": known.get("best_accuracy"),
        "diverged_in_round": diverged,
        "non_finite_updates": known.get("non_finite_updates"),
        **{f"rounds_to_{target:g}": rounds_to(records, target) for target in study.targets},
        **{
            f"{fate}_{kind}": sum(nodes[fate][part]) if nodes else None
            for fate in FATES
            for kind, part in (("iid", slice(iid)), ("other", slice(iid, None)))
        },
        "weights_sha256": known.get("weights_sha256"),
        "population_sha256": population.get("sha256"),
        "seconds": known.get("seconds"),
        **{key: known.get(key) for key in LEDGER},
        "error": "" if finished else error,
        **{key: value for key, value in settings.items() if key not in head},
    }


def _point(record: Record) -> dict[str, Any]:
    """The numbers of a round."""
    numbers = {key: record.get(key) for key in ("round", *PLOTTED, "seconds", *LEDGER)}
    return numbers | {fate: len(record[fate]) for fate in (*FATES, "aggregated")}


def _final(records: Sequence[Record], key: str) -> float | None:
    """The mean over the last 5 rounds that have it."""
    values = [record[key] for record in records if record.get(key) is not None]
    return float(np.mean(values[-LAST:])) if values else None


# --- the table -------------------------------------------------------------------------------------------------------


def table(results: Results, trials: Sequence[Trial]) -> pd.DataFrame:
    """One row per setting: means over seeds with 95 % intervals, the difference to the baseline seed by seed, the paper's."""
    by_trial = results.trials.set_index("trial", drop=False)
    over = by_trial[by_trial["status"].isin(["done", "diverged"])]
    by_setting: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.name in over.index:
            by_setting.setdefault(str(over.loc[trial.name, "setting"]), []).append(trial)
    done = over[over["status"] == "done"]
    experiments = {trial.name: trial.experiment for trial in trials if trial.name in done.index}
    return pd.DataFrame([_setting_row(results.study, group, done, experiments) for group in by_setting.values()])


def _setting_row(
    study: Study, trials: Sequence[Trial], done: pd.DataFrame, experiments: dict[str, Experiment]
) -> dict[str, Any]:
    """Over the seeds that came to their end; how many diverged is said beside them."""
    group = [trial for trial in trials if trial.name in done.index]
    rows = done.loc[[trial.name for trial in group]]
    experiment = trials[0].experiment
    settings = experiment.settings()
    row: dict[str, Any] = {key: settings.get(key) for key in study.axes}
    row["seeds"], row["diverged"] = len(group), len(trials) - len(group)
    for quantity in dict.fromkeys(["test_accuracy", *study.plot.quantities]):
        column = f"final_{quantity.removeprefix('test_')}"
        values = rows[column].astype(float)
        row[quantity], row[f"{quantity}_interval"] = values.mean(), interval(list(values))
        row[f"{quantity}_published"] = published_final(experiment, quantity)
    difference = _difference(study, group, done, experiments)
    row["difference"], row["difference_interval"] = difference.mean, difference.interval
    row["p"], row["better"], row["pairs"] = difference.p, difference.better, difference.pairs
    for target in study.targets:
        reached = rows[f"rounds_to_{target:g}"].dropna().astype(float)
        row[f"rounds_to_{target:g}"] = reached.mean() if len(reached) else None
        row[f"rounds_to_{target:g}_interval"] = interval(list(reached)) if len(reached) else None
        row[f"reached_{target:g}"] = len(reached)
        row[f"rounds_to_{target:g}_published"] = published_rounds_to(experiment, target)
    for key in LEDGER:
        spent = rows[key].astype(float)
        row[key], row[f"{key}_interval"] = spent.mean(), interval(list(spent))
    return row


def _difference(study: Study, group: Sequence[Trial], done: pd.DataFrame, experiments: dict[str, Experiment]) -> Paired:
    """This against the baseline, seed by seed: the final accuracy."""
    pairs = [(trial.name, other) for trial in group if (other := study.partner(trial, experiments))]
    if not pairs:
        return Paired(np.nan, np.nan, np.nan, 0, 0)
    mine, theirs = (done.loc[list(names), "final_accuracy"].to_numpy(float) for names in zip(*pairs, strict=True))
    return paired(mine, theirs)


def published_final(experiment: Experiment, quantity: str) -> float | None:
    """The paper's mean over the same last 5 rounds; None where it has no such curve or it does not reach that far."""
    curve = published(experiment, quantity)
    if curve is None:
        return None
    last = curve[(curve.index > experiment.rounds - LAST) & (curve.index <= experiment.rounds)]
    return float(last.mean()) if len(last) else None


def published_rounds_to(experiment: Experiment, target: float) -> int | None:
    """Where the paper's mean curve first reaches a target; None if it does not, or did so before it entered the page."""
    curve = published(experiment, "test_accuracy")
    if curve is None or curve.iloc[0] >= target:
        return None
    reached = curve[(curve >= target) & (curve.index <= experiment.rounds)]
    return int(reached.index[0]) if len(reached) else None


def markdown(rows: pd.DataFrame, study: Study) -> str:
    """The table as people read it."""
    header, body = formatted(rows, study)
    lines = [" | ".join(header), " | ".join("---" if name in study.axes else "---:" for name in header)]
    return "\n".join(f"| {line} |" for line in [*lines, *(" | ".join(cells) for cells in body)]) + "\n"


def formatted(rows: pd.DataFrame, study: Study) -> tuple[list[str], list[list[str]]]:
    """Column titles and cells; the paper's value stands in brackets. Columns that say nothing are left out."""
    columns: dict[str, list[str]] = {key: [_plain(value) for value in rows[key]] for key in study.axes}
    columns["seeds"] = [str(count) for count in rows["seeds"]]
    columns["diverged"] = [str(count) if count else "-" for count in rows["diverged"]]
    for quantity in dict.fromkeys(["test_accuracy", *study.plot.quantities]):
        percent = quantity == "test_accuracy"
        ours = [_with_interval(*pair, percent) for pair in _pairs(rows, quantity)]
        paper = [_number(value, percent) for value in rows[f"{quantity}_published"]]
        _add(columns, f"final {quantity.removeprefix('test_').replace('_', ' ')}", ours, paper)
    against = ", ".join(str(value) for value in study.baseline.values())
    columns[f"minus {against}"] = [_with_interval(*pair, True, "+") for pair in _pairs(rows, "difference")]
    for target in study.targets:
        key = f"rounds_to_{target:g}"
        cells = (rows[key], rows[f"{key}_interval"], rows[f"reached_{target:g}"], rows["seeds"])
        ours = [_rounds(*cell) for cell in zip(*cells, strict=True)]
        _add(columns, f"rounds to {target:.0%}", ours, [_plain(value, ".0f") for value in rows[f"{key}_published"]])
    if not rows["simulated_seconds"].isna().all():  # with a device model, what a method costs is a result
        for key, (title, unit) in COSTS.items():
            columns[title] = [
                _with_interval(value / unit, half / unit, False, form=".4g") for value, half in _pairs(rows, key)
            ]
    kept = {title: cells for title, cells in columns.items() if title in study.axes or set(cells) != {"-"}}
    return list(kept), [list(cells) for cells in zip(*kept.values(), strict=True)]


def _add(columns: dict[str, list[str]], title: str, ours: list[str], paper: list[str]) -> None:
    if set(paper) == {"-"}:
        columns[title] = ours
    else:
        columns[f"{title} (published)"] = [
            f"{mine} ({theirs})" if theirs != "-" else mine for mine, theirs in zip(ours, paper, strict=True)
        ]


def _pairs(rows: pd.DataFrame, key: str) -> list[tuple[Any, Any]]:
    return list(zip(rows[key], rows[f"{key}_interval"], strict=True))


def _missing(value: Any) -> bool:
    return value is None or value != value


def _plain(value: Any, form: str = "") -> str:
    return "-" if _missing(value) else f"{value:g}" if isinstance(value, float) and not form else format(value, form)


def _number(value: Any, percent: bool, sign: str = "", form: str = ".4f") -> str:
    return "-" if _missing(value) else f"{100 * value:{sign}.2f}" if percent else f"{value:{sign}{form}}"


def _with_interval(value: Any, half: Any, percent: bool, sign: str = "", form: str = ".4f") -> str:
    number = _number(value, percent, sign, form)
    return number if _missing(value) or _missing(half) else f"{number} ± {_number(half, percent, form=form)}"


def _rounds(value: Any, half: Any, reached: int, seeds: int) -> str:
    """The mean over those seeds that reached it, and how many did, if not all."""
    if not reached:
        return "-"
    return _with_interval(value, half, False, form=".1f") + (f", {reached} of {seeds}" if reached < seeds else "")
