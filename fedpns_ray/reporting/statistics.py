"""Means of a few numbers with their confidence intervals, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats


def interval(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Half the 95 % confidence interval of the mean (Student's t); NaN for one value."""
    n = len(values)
    if n < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))


class Paired(NamedTuple):
    """The difference of two lists, paired by seed."""

    mean: float
    """The mean of the differences."""
    interval: float
    """Half its 95 % interval; NaN for one pair."""
    p: float
    """The p-value of the paired t-test, two-sided; NaN for one pair, or where all differences are the same."""
    better: int
    """Pairs with a difference above 0."""
    pairs: int


def paired(mine: NDArray[np.float64], theirs: NDArray[np.float64]) -> Paired:
    difference = mine - theirs
    n, mean = len(difference), float(np.mean(difference))
    spread = float(np.std(difference, ddof=1)) if n > 1 else 0.0
    p = float(2 * stats.t.sf(abs(mean) / (spread / np.sqrt(n)), n - 1)) if spread > 0 else float("nan")
    return Paired(mean, interval(difference), p, int((difference > 0).sum()), n)
