"""A study's answer in one sentence: which setting wins, by how much, over how many seeds, significantly or not."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.reporting.formatting import form_of
from fedpns_ray.reporting.statistics import Paired, paired
from fedpns_ray.reporting.tables import Results, final, judged_by
from fedpns_ray.study.study_file import Study

LEVEL = 0.05
"""The significance level of the paired t-test, two-sided."""
FEW = 5
"""Seeds below which an interval says little."""


def verdict(results: Results, rows: pd.DataFrame) -> str:
    """The verdict from the finished trials; empty if there is nothing to compare."""
    study, quantity = results.study, judged_by(results.done)
    if study.axes == ["strategy"]:
        finals = results.done.pivot_table(index="seed", columns="strategy", values=final(quantity.key))
        if finals.shape[1] > 1:
            return _of_strategies(finals, study, quantity)
    return _of_settings(rows, study, quantity)


def _of_strategies(finals: pd.DataFrame, study: Study, quantity: Quantity) -> str:
    """The best against the baseline; if that is the best itself, against the next one."""
    ranked = list(finals.mean().sort_values(ascending=quantity.better == "lower").index)
    best, baseline = ranked[0], str(study.baseline.get("strategy"))
    other = baseline if baseline in ranked[1:] else ranked[1]
    both = finals[[best, other]].dropna()
    if both.empty:
        return ""
    return _sentence(best, other, paired(both[best].to_numpy(float), both[other].to_numpy(float)), quantity)


def _sentence(best: str, other: str, difference: Paired, quantity: Quantity) -> str:
    lower, seeds = quantity.better == "lower", difference.pairs
    scale, form = form_of(quantity)  # the table's digits
    points, half = (scale * abs(number) for number in (difference.mean, difference.interval))
    if seeds < 2:
        what = "of loss below" if lower else "points above"
        return f"{best} is {points:{form}} {what} {other} on one seed: more seeds would tell whether that is chance."
    of = "of final loss" if lower else "points of final accuracy"
    found = f"{best} beats {other} by {points:{form}} ± {half:{form}} {of} over {seeds} seeds"
    if np.isnan(difference.p):
        return f"{found}; every seed gives the same difference."
    few = f" Fewer than {FEW} seeds say little." if seeds < FEW else ""
    test = f"(paired t-test, p = {difference.p:.2g})"
    if difference.p < LEVEL:
        return f"{found}: significant {test}.{few}"
    more = (
        f"about {difference.seeds} seeds would decide"
        if difference.seeds
        else "no number of seeds in sight would decide"
    )
    return f"{found}: not significant {test}; {more}.{few}"


def _of_settings(rows: pd.DataFrame, study: Study, quantity: Quantity) -> str:
    """Where settings differ in more than their strategy: how many beat their baseline, and how many significantly."""
    if rows.empty or not (rows["pairs"] > 1).any():
        return ""
    compared = rows[rows["pairs"] > 1]
    lower = quantity.better == "lower"
    better = compared["difference"] < 0 if lower else compared["difference"] > 0
    significant = compared["p"] < LEVEL
    against = ", ".join(str(value) for value in study.baseline.values())
    ahead, behind, what = ("below", "above", "loss") if lower else ("above", "below", "accuracy")
    up, sure, down = (int(which.sum()) for which in (better, better & significant, ~better & significant))
    if len(compared) == 1:
        side, rule = ahead if up else behind, "significantly" if sure or down else "but not significantly"
        return f"The one setting with a baseline ({against}) is {side} it, {rule} (final {what}, paired by seed)."
    return (
        f"{up} of {len(compared)} settings {'is' if up == 1 else 'are'} {ahead} the baseline ({against}), "
        f"{sure} of them significantly; {down} {'is' if down == 1 else 'are'} significantly {behind} it "
        f"(final {what}, paired by seed)."
    )
