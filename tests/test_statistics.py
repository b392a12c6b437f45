"""Intervals and pairs against scipy's own tests."""

import math

import numpy as np
import pytest
from scipy import stats

from fedpns_ray.reporting.statistics import interval, paired


def test_pairs_are_the_paired_t_test():
    rng = np.random.default_rng(1)
    mine, theirs = rng.normal(1, 1, 7), rng.normal(0, 1, 7)
    found, known = paired(mine, theirs), stats.ttest_rel(mine, theirs)
    low, high = known.confidence_interval(0.95)
    assert found.p == pytest.approx(known.pvalue) and found.mean == pytest.approx((low + high) / 2)
    assert found.interval == pytest.approx((high - low) / 2) == interval(mine - theirs)
    assert found.better == (mine > theirs).sum() and found.pairs == 7


def test_one_pair_or_equal_differences_have_no_p():
    assert math.isnan(paired(np.array([1.0]), np.array([0.0])).p)
    assert math.isnan(paired(np.array([1.0, 2.0]), np.array([0.0, 1.0])).p)
