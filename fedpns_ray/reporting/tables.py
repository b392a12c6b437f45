"""The tables of a study: study.csv (one row per trial), curves.parquet (one per trial and round), means over seeds."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import setting_name
from fedpns_ray.records.file_names import STUDY
from fedpns_ray.records.record import CORE, COSTS, FATES, QUANTITIES, Record
from fedpns_ray.records.schema import plotted, united
from fedpns_ray.records.storage import Storage
from fedpns_ray.records.summary import LAST, Summary, counts, diverged_in, rounds_to
from fedpns_ray.reporting.published import published
from fedpns_ray.reporting.report_card import card
from fedpns_ray.reporting.runs import Run
from fedpns_ray.reporting.statistics import Paired, interval, paired
from fedpns_ray.study.study_file import Study, Trial

SPENT = tuple(cost.key for cost in COSTS)


def final(key: str) -> str:
    """The column of a quantity's mean over the last 5 rounds that have it: `final_accuracy`, `final_loss`."""
    return f"final_{key.removeprefix('test_')}"


def judged_by(done: pd.DataFrame) -> Quantity:
    """What settings are compared by: their final accuracy or, where nothing is right or wrong, their final loss."""
    both = Record.test_accuracy, Record.test_loss
    there = [key for key in both if final(key) in done and done[final(key)].notna().any()]
    return CORE[there[0] if there else Record.test_accuracy]


@dataclass(frozen=True)
class Results:
    """The results of a study's trials, in the study's order."""

    study: Study
    trials: pd.DataFrame
    """One row per trial: settings, status, outcome."""
    curves: pd.DataFrame
    """One row per trial and round."""
    quantities: tuple[Quantity, ...] = field(default=plotted(QUANTITIES))
    """What can be plotted, as declared by the runs."""
    label: str = ""
    """Shown above tables and pictures: that the study is partial, or what was selected from it."""

    @cached_property
    def done(self) -> pd.DataFrame:
        """The rows of trials that finished."""
        return self.trials[self.trials["status"] == "done"]

    @cached_property
    def shown(self) -> list[Quantity]:
        """The quantities that the study asks to be plotted."""
        known = {quantity.key: quantity for quantity in self.quantities}
        return [known.get(key) or Quantity(key, key.replace("_", " ")) for key in self.study.plot.quantities]

    def write(self, storage: Storage) -> None:
        storage.write(STUDY, self.study.text)
        storage.write("study.csv", self.trials.to_csv(index=False).encode())
        buffer = io.BytesIO()
        self.curves.to_parquet(buffer, index=False)
        storage.write("curves.parquet", buffer.getvalue())


Found = tuple[Trial, Run | None]
"""A trial, and its run if it has started."""


def tabulate(study: Study, found: Sequence[Found], errors: dict[str, str]) -> Results:
    """One row per trial, and one row per trial and round."""
    quantities = plotted(united([QUANTITIES, *(run.quantities for _, run in found if run)]))
    keys = [quantity.key for quantity in quantities]
    axes = {axis: f"{axis}_setting" if axis in keys else axis for axis in study.axes}  # `expectation` is both
    rows, curves = [], []
    for trial, run in found:
        row = _row(study, trial, run, keys, errors.get(trial.name, ""))
        rows.append(row)
        head = {axes.get(key, key): row[key] for key in ("trial", "setting", *study.axes, "seed")}
        curves += [head | _point(record, keys) for record in (run.records if run else ())]
    columns = ["trial", "setting", *axes.values(), "seed", Record.round, *keys]
    columns += [*FATES, Record.aggregated, Record.seconds, *SPENT]
    return Results(study, pd.DataFrame(rows), pd.DataFrame(curves, columns=columns), quantities)


def _row(study: Study, trial: Trial, run: Run | None, keys: Sequence[str], error: str) -> dict[str, Any]:
    """The row of a trial; its columns are the same whatever became of the trial."""
    settings = trial.experiment.settings()
    finished, over = bool(run and run.finished), bool(run and run.over)
    known = run.summary if run and run.summary and over else Summary()
    diverged = diverged_in(known)
    head = {
        "trial": trial.name,
        "setting": setting_name(trial.experiment),
        "status": "done" if finished else "diverged" if diverged else "failed" if error else "unfinished",
        **{key: settings.get(key) for key in study.axes},
        "seed": trial.experiment.seed,
    }
    records = run.records if run and finished else []
    population = known.population or {}
    return {
        **head,
        **{final(key): _final(records, key) for key in keys},
        Summary.best_accuracy: known.best_accuracy,
        "diverged_in_round": diverged,
        Summary.non_finite_updates: known.non_finite_updates,
        **{f"rounds_to_{target:g}": rounds_to(records, target) for target in study.targets},
        **_fates(known, trial.experiment.nodes, population.get("iid_nodes")),
        Summary.weights_sha256: known.weights_sha256,
        "population_sha256": population.get("sha256"),
        Summary.seconds: known.seconds,
        **{key: known.get(key) for key in SPENT},
        **card(run if finished else None),
        "error": "" if finished else error,
        **{key: value for key, value in settings.items() if key not in head},
    }


def _fates(summary: Summary, nodes: int, iid: int | None) -> dict[str, int | None]:
    """How often i.i.d. and other nodes met each fate: `drawn_iid`, `drawn_other`, …"""
    parts = (("iid", slice(iid)), ("other", slice(iid, None)))
    found = {fate: counts(summary, fate, nodes) for fate in FATES}
    return {
        f"{fate}_{kind}": None if times is None else int(times[part].sum())
        for fate, times in found.items()
        for kind, part in parts
    }


def _point(record: Record, keys: Sequence[str]) -> dict[str, Any]:
    """The numbers of a round."""
    numbers = {key: record.get(key) for key in (Record.round, *keys, Record.seconds, *SPENT)}
    return numbers | {fate: len(record[fate]) for fate in (*FATES, Record.aggregated)}


def _final(records: Sequence[Record], key: str) -> float | None:
    """The mean of a quantity over the last 5 rounds that have it."""
    values = [record[key] for record in records if record.get(key) is not None]
    return float(np.mean(values[-LAST:])) if values else None


# --- the table -------------------------------------------------------------------------------------------------------


def table(results: Results, trials: Sequence[Trial]) -> pd.DataFrame:
    """One row per setting: means over seeds, 95 % intervals, paired differences from the baseline, published values."""
    by_trial = results.trials.set_index("trial", drop=False)
    over = by_trial[by_trial["status"].isin(["done", "diverged"])]
    by_setting: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.name in over.index:
            by_setting.setdefault(str(over.loc[trial.name, "setting"]), []).append(trial)
    done = over[over["status"] == "done"]
    experiments = {trial.name: trial.experiment for trial in trials if trial.name in done.index}
    return pd.DataFrame([_setting_row(results.study, group, done, experiments) for group in by_setting.values()])


def columns_of(study: Study, done: pd.DataFrame | None = None) -> list[str]:
    """Keys of the quantities that a table shows: accuracy, what the study plots, what finished trials compare by."""
    judged = [] if done is None else [judged_by(done).key]
    return list(dict.fromkeys([Record.test_accuracy, *study.plot.quantities, *judged]))


def _setting_row(
    study: Study, trials: Sequence[Trial], done: pd.DataFrame, experiments: dict[str, Experiment]
) -> dict[str, Any]:
    """The row of a setting: means over the seeds that finished, and the number that diverged."""
    group = [trial for trial in trials if trial.name in done.index]
    rows = done.loc[[trial.name for trial in group]]
    experiment = trials[0].experiment
    settings = experiment.settings()
    row: dict[str, Any] = {key: settings.get(key) for key in study.axes}
    row["seeds"], row["diverged"] = len(group), len(trials) - len(group)
    for key in columns_of(study, done):
        values = rows[final(key)].astype(float) if final(key) in rows else pd.Series(np.nan, rows.index)
        row[key], row[f"{key}_interval"] = values.mean(), interval(list(values))
        row[f"{key}_published"] = published_final(experiment, key)
    difference = _difference(study, group, done, experiments)
    row["difference"], row["difference_interval"] = difference.mean, difference.interval
    row["p"], row["better"], row["pairs"] = difference.p, difference.better, difference.pairs
    for target in study.targets:
        reached = rows[f"rounds_to_{target:g}"].dropna().astype(float)
        row[f"rounds_to_{target:g}"] = reached.mean() if len(reached) else None
        row[f"rounds_to_{target:g}_interval"] = interval(list(reached)) if len(reached) else None
        row[f"reached_{target:g}"] = len(reached)
        row[f"rounds_to_{target:g}_published"] = published_rounds_to(experiment, target)
    for key in SPENT:
        spent = rows[key].astype(float)
        row[key], row[f"{key}_interval"] = spent.mean(), interval(list(spent))
    return row


def _difference(study: Study, group: Sequence[Trial], done: pd.DataFrame, experiments: dict[str, Experiment]) -> Paired:
    """The difference in final accuracy (or loss) from the baseline, seed by seed."""
    pairs = [(trial.name, other) for trial in group if (other := study.partner(trial, experiments))]
    if not pairs:
        return Paired(np.nan, np.nan, np.nan, 0, 0, None)
    quantity = judged_by(done)
    mine, theirs = (done.loc[list(names), final(quantity.key)].to_numpy(float) for names in zip(*pairs, strict=True))
    return paired(mine, theirs, quantity.better)


def published_final(experiment: Experiment, quantity: str) -> float | None:
    """The paper's mean over the same last 5 rounds; None if it has no such curve, or a shorter one."""
    curve = published(experiment, quantity)
    if curve is None:
        return None
    last = curve[(curve.index > experiment.rounds - LAST) & (curve.index <= experiment.rounds)]
    return float(last.mean()) if len(last) else None


def published_rounds_to(experiment: Experiment, target: float) -> int | None:
    """Where the paper's mean curve first reaches a target; None if it never does, or starts above it."""
    curve = published(experiment, Record.test_accuracy)
    if curve is None or curve.iloc[0] >= target:
        return None
    reached = curve[(curve >= target) & (curve.index <= experiment.rounds)]
    return int(reached.index[0]) if len(reached) else None
