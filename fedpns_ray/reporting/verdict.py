"""A study's answer in one sentence: which setting wins, by how much, over how many seeds, significantly or not."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedpns_ray.reporting.statistics import Paired, paired
from fedpns_ray.reporting.tables import FINAL_ACCURACY, Results
from fedpns_ray.study.study_file import Study

LEVEL = 0.05
"""The significance level of the paired t-test, two-sided."""
FEW = 5
"""Seeds below which an interval says little."""


def verdict(results: Results, rows: pd.DataFrame) -> str:
    """The verdict from the finished trials; empty if there is nothing to compare."""
    study = results.study
    if study.axes == ["strategy"]:
        finals = results.done.pivot_table(index="seed", columns="strategy", values=FINAL_ACCURACY)
        if finals.shape[1] > 1:
            return _of_strategies(finals, study)
    return _of_settings(rows, study)


def _of_strategies(finals: pd.DataFrame, study: Study) -> str:
    """The best against the baseline; if that is the best itself, against the next one."""
    ranked = list(finals.mean().sort_values(ascending=False).index)
    best, baseline = ranked[0], str(study.baseline.get("strategy"))
    other = baseline if baseline in ranked[1:] else ranked[1]
    both = finals[[best, other]].dropna()
    if both.empty:
        return ""
    return _sentence(best, other, paired(both[best].to_numpy(float), both[other].to_numpy(float)))


def _sentence(best: str, other: str, difference: Paired) -> str:
    points, seeds = 100 * difference.mean, difference.pairs
    if seeds < 2:
        return f"{best} is {points:.2f} points above {other} on one seed: more seeds would tell whether that is chance."
    half = f" ± {100 * difference.interval:.2f}"
    found = f"{best} beats {other} by {points:.2f}{half} points of final accuracy over {seeds} seeds"
    if np.isnan(difference.p):
        return f"{found}; every seed gives the same difference."
    judged = "significant" if difference.p < LEVEL else "not significant"
    few = f" Fewer than {FEW} seeds say little." if seeds < FEW else ""
    return f"{found}: {judged} (paired t-test, p = {difference.p:.2g}).{few}"


def _of_settings(rows: pd.DataFrame, study: Study) -> str:
    """Where settings differ in more than their strategy: how many beat their baseline, and how many significantly."""
    if rows.empty or not (rows["pairs"] > 1).any():
        return ""
    compared = rows[rows["pairs"] > 1]
    better, significant = compared["difference"] > 0, compared["p"] < LEVEL
    against = ", ".join(str(value) for value in study.baseline.values())
    return (
        f"{int(better.sum())} of {len(compared)} settings are above their baseline ({against}), "
        f"{int((better & significant).sum())} of them significantly; {int((~better & significant).sum())} are "
        "significantly below it (final accuracy, paired by seed)."
    )
