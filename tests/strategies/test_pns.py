"""Equations (7) and (8), and drawing by what they leave."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpns_ray.core.interfaces import Nodes, Outcome, Updates
from fedpns_ray.strategies.pns import ProbabilisticSelection, move_probabilities


def nodes(count=50, per_round=10):
    return Nodes(np.full(count, 200), np.arange(count) < count // 5, per_round)


def never(ids):
    raise AssertionError("FedPNS asks no node for its loss")


def updates(ids):
    m = len(ids)
    ids = tuple(sorted(ids))
    return Updates(ids, np.zeros((m, 1), dtype=np.float32), np.zeros(m), np.full(m, 200), np.full(m, 10), 0.01)


def outcome(labelled):
    return Outcome(np.zeros(1, dtype=np.float32), aggregated=(), labelled=tuple(labelled))


@st.composite
def moves(draw):
    count = draw(st.integers(1, 30))
    raw = draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    p = np.array(raw)
    p = p / p.sum() if p.sum() > 0 else np.full(count, 1 / count)
    labelled = np.array(sorted(draw(st.sets(st.integers(0, count - 1)))), dtype=np.int64)
    x = np.array(draw(st.lists(st.floats(0.01, 1), min_size=len(labelled), max_size=len(labelled))))
    return p, labelled, x, draw(st.floats(0.1, 5)), draw(st.floats(0, 1))


@settings(max_examples=1000, deadline=None)
@given(moves())
def test_probability_moves_from_labelled_to_others(move):
    p, labelled, x, alpha, beta = move
    moved = move_probabilities(p, labelled, x, alpha, beta)
    others = np.setdiff1d(np.arange(len(p)), labelled)
    assert moved.sum() == pytest.approx(1, abs=1e-12)
    assert (moved >= 0).all()
    assert (moved[labelled] <= p[labelled]).all()
    if len(others):
        assert np.ptp((moved - p)[others]) == pytest.approx(0, abs=1e-15)
        assert ((moved - p)[others] >= 0).all()
        np.testing.assert_allclose(moved[labelled], p[labelled] * (1 - np.minimum((x + beta) ** alpha, 1)), atol=1e-15)
    else:
        assert np.array_equal(moved, p)


def test_numbers_of_the_paper():
    """beta 0.7, alpha 2: a node labelled in 30 % of its draws goes to exactly 0."""
    p = np.full(50, 0.02)
    moved = move_probabilities(p, np.array([3, 4]), np.array([0.3, 0.1]), alpha=2, beta=0.7)
    assert moved[3] == 0.0
    assert moved[4] == pytest.approx(0.02 * (1 - 0.8**2))
    assert moved[0] == pytest.approx(0.02 + (0.02 + 0.02 * 0.64) / 48)


def test_x_counts_this_round_and_only_returned_draws():
    selection = ProbabilisticSelection()
    selection.begin(nodes(4, 2))
    selection.learn(updates([0, 1]), outcome([]))
    selection.learn(updates([0, 2]), outcome([0]))  # x_0 = 1/2, so p_0 falls by min(1.2^2, 1)
    state = selection.state_dict()
    assert state["drawn"].tolist() == [2, 1, 1, 0] and state["labelled"].tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(state["p"], [0, 1 / 3, 1 / 3, 1 / 3])


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 20), st.data())
def test_draw_always_returns_distinct_nodes(count, data):
    per_round = data.draw(st.integers(1, count))
    p = np.array(data.draw(st.lists(st.sampled_from([0.0, 1e-300, 0.1, 1.0]), min_size=count, max_size=count)))
    p = p / p.sum() if p.sum() > 0 else p
    selection = ProbabilisticSelection()
    selection.begin(nodes(count, per_round))
    selection.load_state_dict({"p": p, "drawn": np.zeros(count, int), "labelled": np.zeros(count, int)})
    drawn = selection.draw(np.random.default_rng(0), never)
    assert len(set(drawn)) == per_round == len(drawn)
    if (p > 0).sum() <= per_round:
        assert set(np.flatnonzero(p > 0)) <= set(drawn)
    else:
        assert set(drawn) <= set(np.flatnonzero(p > 0))


def test_draw_follows_the_probabilities():
    selection = ProbabilisticSelection()
    selection.begin(nodes(4, 1))
    p = np.array([0.5, 0.3, 0.2, 0.0])
    selection.load_state_dict({"p": p, "drawn": np.zeros(4, int), "labelled": np.zeros(4, int)})
    rng = np.random.default_rng(7)
    counts = np.bincount([selection.draw(rng, never)[0] for _ in range(4000)], minlength=4)
    np.testing.assert_allclose(counts / 4000, p, atol=0.03)


def test_every_drawn_node_labelled_and_every_node_labelled():
    selection = ProbabilisticSelection()
    selection.begin(nodes(3, 2))
    selection.learn(updates([0, 1]), outcome([0, 1]))
    assert selection.state_dict()["p"].tolist() == [0, 0, 1]
    selection.learn(updates([0, 1, 2]), outcome([0, 1, 2]))
    assert selection.state_dict()["p"].sum() == 1


def test_state_survives_a_checkpoint():
    one, two = ProbabilisticSelection(), ProbabilisticSelection()
    for selection in (one, two):
        selection.begin(nodes())
    one.learn(updates(range(10)), outcome([1, 2]))
    two.load_state_dict(one.state_dict())
    one.learn(updates([1, 5]), outcome([1]))
    assert two.state_dict()["drawn"].sum() == 10  # a copy, not a view
    two.learn(updates([1, 5]), outcome([1]))
    for key, value in one.state_dict().items():
        assert np.array_equal(value, two.state_dict()[key])
