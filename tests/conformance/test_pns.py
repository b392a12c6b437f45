"""Probabilistic node selection: equations (7) and (8) of the FedPNS paper (Wu and Wang 2022), by hand and by oracle."""

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Nodes, Outcome, Updates
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.pns import ProbabilisticSelection, move_probabilities
from tests.conformance.oracles.pns import released_probabilities

DIFFERENCES = (
    "Round 1 draws uniformly, as Algorithm 2 says; the released code draws 5 i.i.d. and 5 other nodes.",
    "Where fewer than |S_t| nodes have a probability above 0, all of them are drawn and the rest uniformly among the "
    "others; the released code ends with an error of numpy's.",
    "Where every node of K is labelled, probabilities stay as they are; the released code divides by 0.",
    "beta is a parameter; the released code has 0.7 in its source.",
)


def nodes(count=50, per_round=10):
    return Nodes(np.full(count, 200), np.arange(count) < count // 5, per_round)


def begun(count=50, per_round=10, **parameters):
    selection = ProbabilisticSelection(**parameters)
    selection.begin(nodes(count, per_round))
    return selection


def updates(ids):
    m = len(ids)
    ids = tuple(sorted(ids))
    return Updates(ids, np.zeros((m, 1), dtype=np.float32), np.zeros(m), np.full(m, 200), np.full(m, 10), 0.01)


def outcome(labelled):
    return Outcome(np.zeros(1, dtype=np.float32), aggregated=(), labelled=tuple(labelled))


def never(ids):
    raise AssertionError("FedPNS asks no node for its loss")


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_numbers_of_the_paper():
    """(7) with beta 0.7, alpha 2: x = 0.3 gives (0.3 + 0.7)^2 = 1, so p falls to 0; x = 0.1 gives 0.64. (8): the
    other 48 nodes share 0.02 + 0.0128 = 0.0328."""
    moved = move_probabilities(np.full(50, 0.02), np.array([3, 4]), np.array([0.3, 0.1]), alpha=2, beta=0.7)
    assert moved[3] == 0.0
    assert moved[4] == pytest.approx(0.0072)
    np.testing.assert_allclose(np.delete(moved, [3, 4]), 0.02 + 0.0328 / 48)
    assert (ProbabilisticSelection().alpha, ProbabilisticSelection().beta) == (2.0, 0.7)  # Section V-A


def test_the_decrement_is_at_most_p():
    """(7): min(., 1). x = 0.9 would take (1.6)^2 = 2.56 times p."""
    np.testing.assert_allclose(
        move_probabilities(np.array([0.4, 0.6]), np.array([0]), np.array([0.9]), 2, 0.7), [0, 1], atol=1e-15
    )


def test_x_counts_this_round_and_only_returned_draws():
    """x_i of (7) is the number of times that i was labelled over those that it was drawn and returned: 1 of 2."""
    selection = begun(4, 2, beta=0.2)
    assert selection.state_dict()["p"].tolist() == [0.25] * 4  # Algorithm 2, line 1
    selection.learn(updates([0, 1]), outcome([]))
    selection.learn(updates([0, 2]), outcome([0]))  # x = 1/2: p_0 falls by 0.7^2 = 0.49 of it
    state = selection.state_dict()
    assert state["drawn"].tolist() == [2, 1, 1, 0] and state["labelled"].tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(state["p"], [0.25 * 0.51, *[0.25 + 0.25 * 0.49 / 3] * 3])


def test_every_drawn_node_labelled_and_every_node_labelled():
    selection = begun(3, 2)
    selection.learn(updates([0, 1]), outcome([0, 1]))
    assert selection.state_dict()["p"].tolist() == [0, 0, 1]
    selection.learn(updates([0, 1, 2]), outcome([0, 1, 2]))
    assert selection.state_dict()["p"].tolist() == [0, 0, 1]


def test_what_is_recorded():
    """The probability of i.i.d. nodes (0 .. 9 of 50), and of every node up to 1000 of them."""
    notes = begun().notes()
    assert notes["iid_probability"] == 0.2 and notes["probability"] == [0.02] * 50
    assert "probability" in begun(1000).notes() and "probability" not in begun(1001).notes()


def test_a_copy_crosses_a_checkpoint():
    one, two = begun(), begun()
    one.learn(updates(range(10)), outcome([1, 2]))
    two.load_state_dict(one.state_dict())
    one.learn(updates([1, 5]), outcome([1]))
    assert two.state_dict()["drawn"].sum() == 10


# --- by oracle -------------------------------------------------------------------------------------------------------


def test_the_same_probabilities_as_the_released_rule():
    """400 random histories of 1 to 6 rounds; alpha is the released code's `prob_ratio`, beta its 0.7."""
    rng = np.random.default_rng(16)
    for _ in range(400):
        count, alpha = int(rng.integers(2, 12)), float(rng.uniform(0.5, 4))
        per_round = int(rng.integers(1, count + 1))
        selection, history = begun(count, per_round, alpha=alpha), []
        for _ in range(int(rng.integers(1, 7))):
            drawn = sorted(rng.choice(count, per_round, replace=False).tolist())
            labelled = [node for node in drawn if rng.random() < 0.4][: count - 1]
            history.append((drawn, labelled))
            selection.learn(updates(drawn), outcome(labelled))
        expected = released_probabilities(count, history, alpha)
        np.testing.assert_allclose(selection.state_dict()["p"], expected, atol=1e-12)
        assert selection.state_dict()["p"].sum() == pytest.approx(1, abs=1e-12)


def test_draws_are_distinct_and_take_the_possible_first():
    rng = np.random.default_rng(17)
    for t in range(300):
        count = int(rng.integers(1, 20))
        selection = begun(count, int(rng.integers(1, count + 1)))
        p = rng.choice([0.0, 1e-300, 0.1, 1.0], count)
        p = p / p.sum() if p.sum() > 0 else p
        selection.load_state_dict({"p": p, "drawn": np.zeros(count, int), "labelled": np.zeros(count, int)})
        drawn, possible = selection.draw(stream(1, "draw", t), never), set(np.flatnonzero(p > 0).tolist())
        assert len(set(drawn)) == len(drawn) == selection._nodes.per_round
        assert possible <= set(drawn) or set(drawn) <= possible


def test_draws_follow_the_probabilities():
    selection = begun(4, 1)
    p = np.array([0.5, 0.3, 0.2, 0.0])
    selection.load_state_dict({"p": p, "drawn": np.zeros(4, int), "labelled": np.zeros(4, int)})
    rng = np.random.default_rng(7)
    counts = np.bincount([selection.draw(rng, never)[0] for _ in range(2000)], minlength=4)
    np.testing.assert_allclose(counts / 2000, p, atol=0.05)
