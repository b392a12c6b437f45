"""Means of a few numbers with their confidence intervals, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

MOST_SEEDS = 1000
"""More seeds than this are not proposed."""


def interval(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Half the 95 % confidence interval of the mean (Student's t); NaN for one value."""
    n = len(values)
    if n < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))


def t_value(mean: float, spread: float, n: int) -> float:
    """Student's t of n values; infinite where all are the same but not 0."""
    if spread == 0:
        return float(np.sign(mean) * np.inf) if mean else 0.0
    return float(mean / (spread / np.sqrt(n)))


def seeds_to_decide(mean: float, spread: float, n: int, level: float) -> int | None:
    """Seeds, at least n, from which a one-sided test decides if mean and spread stay; None beyond 1,000."""
    candidates = np.arange(max(n, 2), MOST_SEEDS + 1)
    enough = abs(mean) * np.sqrt(candidates) > spread * stats.t.isf(level, candidates - 1)
    return int(candidates[enough.argmax()]) if enough.any() else None


class Paired(NamedTuple):
    """The difference of two lists, paired by seed."""

    mean: float
    """The mean of the differences."""
    interval: float
    """Half its 95 % interval; NaN for one pair."""
    p: float
    """The p-value of the paired t-test, two-sided; NaN for one pair, or where all differences are the same."""
    better: int
    """Pairs in which mine is the better one."""
    pairs: int
    seeds: int | None
    """Pairs from which the t-test would be significant at 5 % if mean and spread stay; None if more than 1,000."""


def paired(mine: NDArray[np.float64], theirs: NDArray[np.float64], better: str = "higher") -> Paired:
    """`better`: whether higher or lower values are."""
    difference = mine - theirs
    n, mean = len(difference), float(np.mean(difference))
    spread = float(np.std(difference, ddof=1)) if n > 1 else 0.0
    p = float(2 * stats.t.sf(abs(mean) / (spread / np.sqrt(n)), n - 1)) if spread > 0 else float("nan")
    ahead = difference < 0 if better == "lower" else difference > 0
    return Paired(mean, interval(difference), p, int(ahead.sum()), n, seeds_to_decide(mean, spread, n, 0.025))
