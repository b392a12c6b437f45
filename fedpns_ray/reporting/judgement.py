"""What became of a study's claims: kept, refuted or undecided, and how many seeds would decide.

Two one-sided paired t-tests decide, one for the claim and one for its opposite: that the first is not significant
refutes nothing. Over all claims of a study, and all settings that they speak of, p-values are corrected by Holm's
method, so that `level` holds for all of them together. The exact sign-flip test, which does not assume normal
differences, is reported beside them. Nothing is decided while seeds are missing: stopping as soon as the result
pleases would keep too many claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from fedpns_ray.reporting.statistics import interval, seeds_to_decide, t_value
from fedpns_ray.reporting.tables import Results
from fedpns_ray.study.claims_block import Claim

Points = NDArray[np.float64]

MOST_FLIPPED = 16
"""Pairs up to which every way to flip signs is tried; with more, the exact test takes too long."""


@dataclass(frozen=True)
class Judged:
    """A claim in one combination of the study's other axes."""

    claim: Claim
    where: Mapping[str, Any]
    """The values of the other axes."""
    pairs: int
    missing: int
    """Seeds without a result of both: unfinished, failed or diverged."""
    effect: float
    """The mean difference, in points; NaN without pairs."""
    half: float
    """Half its 95 % interval; NaN for fewer than two pairs."""
    p_kept: float
    """That the claim does not hold and yet the differences lie so far on its side; after Holm."""
    p_refuted: float
    """The same for its opposite."""
    p_sign_flip: float
    seeds: int | None
    """Seeds that would decide if the effect and the spread stay as they are; None if none would."""

    @property
    def verdict(self) -> str:
        if self.missing:
            return "undecided"
        level = self.claim.level
        return "kept" if self.p_kept < level else "refuted" if self.p_refuted < level else "undecided"

    def __str__(self) -> str:
        there = ", ".join(f"{key} {value}" for key, value in self.where.items())
        what = f"{self.claim.describe()}{f' ({there})' if there else ''}"
        of = f" of {self.pairs + self.missing}" if self.missing else ""
        if self.pairs < 2:
            seeds = "seed" if self.pairs + self.missing == 1 else "seeds"
            return f"{self.verdict}: {what}: {self.pairs}{of} {seeds}; at least 2 are needed"
        found = f"{self.effect:+.2f} ± {self.half:.2f} points over {self.pairs}{of} seeds"
        if self.missing:
            return f"{self.verdict}: {what}: so far {found}; the others are unfinished, failed or diverged"
        p = self.p_refuted if self.verdict == "refuted" else self.p_kept
        tests = f"p = {p:.2g}" + (f", sign-flip test {self.p_sign_flip:.2g}" if np.isfinite(self.p_sign_flip) else "")
        more = ""
        if self.verdict == "undecided":
            more = (
                f"; about {self.seeds} seeds would decide" if self.seeds else "; the effect is too close to the margin"
            )
        return f"{self.verdict}: {what}: {found} ({tests}){more}"


def judged(results: Results) -> list[Judged]:
    """Every claim of the study, by the trials that are done."""
    samples = [
        (claim, where, points, missing)
        for claim in results.study.claims
        for where, points, missing in _differences(claim, results)
    ]
    found = [_test(*sample, tests=len(samples)) for sample in samples]
    kept, refuted = (_holm([getattr(one, key) for one in found]) for key in ("p_kept", "p_refuted"))
    return [replace(one, p_kept=a, p_refuted=b) for one, a, b in zip(found, kept, refuted, strict=True)]


def table_of(claims: Sequence[Judged]) -> pd.DataFrame:
    """One row per claim and combination, for claims.csv."""
    return pd.DataFrame([
        {"verdict": one.verdict, "claim": one.claim.describe(), **one.where, "on": one.claim.on,
         "seeds": one.pairs, "missing": one.missing,
         "effect_points": one.effect, "half_interval": one.half, "p_kept": one.p_kept, "p_refuted": one.p_refuted,
         "p_sign_flip": one.p_sign_flip, "seeds_to_decide": one.seeds}
        for one in claims
    ])  # fmt: skip


def _differences(claim: Claim, results: Results) -> list[tuple[dict[str, Any], Points, int]]:
    """The differences of both strategies by seed, in points, and how many are missing, in each combination of axes."""
    others = [axis for axis in results.study.axes if axis != "strategy"]
    rows = results.trials.assign(**{claim.on: results.trials[claim.on].where(results.trials["status"] == "done")})
    for key, value in claim.where.items():
        if key in rows:
            rows = rows[rows[key].astype(str) == str(value)]
    mine, theirs = (rows[rows["strategy"] == name] for name in (claim.strategy, claim.than))
    own = [axis for axis in others if mine[axis].notna().any()]  # such as alpha, which the other one does not have
    shared = [axis for axis in own if theirs[axis].notna().any()]
    pairs = mine.merge(theirs[[*shared, "seed", claim.on]], on=[*shared, "seed"], suffixes=("", "_other"), how="left")
    points = 100 * (pairs[claim.on].astype(float) - pairs[f"{claim.on}_other"].astype(float))
    varying = _telling(pairs, own)
    by = [pairs[axis] for axis in varying]
    groups = points.groupby(by, sort=False, dropna=False) if varying else [((), points)]
    return [(_there(zip(varying, key, strict=True)), *_finite(group)) for key, group in groups]


def _telling(pairs: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    """The axes that tell settings apart; an option that is off has no value (NaN), which is a setting like any other.

    What follows from the axes before it (the sigma of the partition sigma-rho) tells nothing more.
    """
    found: list[str] = []
    for axis in sorted(axes, key=lambda axis: bool(pairs[axis].isna().any())):  # what is never off names settings best
        if len(pairs[[*found, axis]].drop_duplicates()) > (len(pairs[found].drop_duplicates()) if found else 1):
            found.append(axis)
    return found


def _there(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in values if value == value}


def _finite(values: pd.Series) -> tuple[Points, int]:
    points = np.asarray(values, dtype=np.float64)
    there = np.isfinite(points)
    return points[there], int((~there).sum())


def _test(claim: Claim, where: Mapping[str, Any], points: Points, missing: int, tests: int) -> Judged:
    n = len(points)
    beyond = points - (claim.margin_points if claim.better else -claim.margin_points)
    effect = float(points.mean()) if n else float("nan")
    if n < 2:
        return Judged(claim, where, n, missing, effect, float("nan"), 1.0, 1.0, float("nan"), None)
    mean, spread = float(beyond.mean()), float(beyond.std(ddof=1))
    t = t_value(mean, spread, n)
    kept, refuted = float(stats.t.sf(t, n - 1)), float(stats.t.cdf(t, n - 1))
    seeds = seeds_to_decide(mean, spread, n, claim.level / tests)  # Holm's first step
    return Judged(claim, where, n, missing, effect, interval(points), kept, refuted, _sign_flip(beyond), seeds)


def _sign_flip(beyond: Points) -> float:
    """How likely a mean at least this large is if every sign were a coin's; exact. NaN for too many pairs."""
    if len(beyond) > MOST_FLIPPED:
        return float("nan")
    every = np.inf  # all 2^n ways
    test = stats.permutation_test(
        (beyond,), np.mean, permutation_type="samples", alternative="greater", n_resamples=every
    )
    return float(test.pvalue)


def _holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: valid whatever the tests have to do with each other."""
    order, found, largest = np.argsort(values), [1.0] * len(values), 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[k]))
        found[k] = largest
    return found
