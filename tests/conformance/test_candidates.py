"""What several methods share: many nodes train, few are asked for their updates."""

import numpy as np
import pytest

from fedpns_ray import InputError
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.candidates import CandidateSelection, largest, weighted_norms
from tests.strategies.made import nodes, updates

DIFFERENCES = ()


def begun(count=10, per_round=3, candidates=5):
    selection = CandidateSelection(candidates=candidates)
    selection.begin(nodes(count, per_round))
    return selection


def test_candidates_are_drawn_uniformly():
    """5 of 10: each is a candidate in half of the rounds."""
    selection = begun()
    drawn = [selection.draw(stream(1, "draw", t), None) for t in range(1000)]
    assert all(len(set(one)) == 5 for one in drawn)
    np.testing.assert_allclose(np.bincount(np.concatenate(drawn)) / 1000, 0.5, atol=0.07)


def test_what_it_declares():
    """Every candidate trains and reports one number; |M| = 20 in Section V-D of the FedPNS paper."""
    assert CandidateSelection().candidates == 20 == CandidateSelection().trains(10)
    assert CandidateSelection.reports == 1
    assert begun().size(updates(np.ones((5, 1)))) == 3 and begun().size(updates(np.ones((2, 1)))) == 2


def test_too_few_or_too_many_are_refused():
    for candidates in (2, 11):
        with pytest.raises(InputError, match=f"candidates: {candidates} is not allowed; it must be between 3"):
            begun(candidates=candidates)
    begun(candidates=3)
    begun(candidates=10)


def test_weighted_norms():
    """psi = 1/4 and 3/4, norms 5 and 1: 1.25 and 0.75. A norm that is not finite counts as 0."""
    np.testing.assert_allclose(weighted_norms(updates([[3, 4], [0, 1]], sizes=[100, 300])), [1.25, 0.75])
    np.testing.assert_allclose(weighted_norms(updates([[np.nan, 4], [0, 1], [np.inf, 0]])), [0, 1 / 3, 0])


def test_the_largest_are_those_of_a_sorted_list():
    """500 random lists with ties: a tie goes to the lower position, and positions come in ascending order."""
    rng = np.random.default_rng(8)
    for _ in range(500):
        values = rng.integers(0, 6, int(rng.integers(1, 12))).astype(float)
        size = int(rng.integers(0, len(values) + 2))
        expected = sorted(sorted(range(len(values)), key=lambda k: (-values[k], k))[:size])
        assert largest(values, size) == expected
