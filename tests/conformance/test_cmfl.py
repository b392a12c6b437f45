"""CMFL: the relevance e(u, u') and Algorithm 1 of Wang et al. 2019, by hand and by oracle."""

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.cmfl import RelevantSelection, relevance
from tests.strategies.made import nodes, updates

DIFFERENCES = (
    "Of K, only the drawn nodes train; in the paper every node trains in every round.",
    "A round in which no node sent keeps the last global update; the paper does not say what follows such a round.",
    "The threshold of round 1 is 0.8, and it falls as v / sqrt(t), one of the two schedules of the paper.",
)
FOUR = updates([[1, 1, 1, 1], [1, -1, 1, -1], [-1, -1, -1, 1], [0, 1, -1, -1]])


def begun(relevance=0.5, relevance_decay="none"):
    selection = RelevantSelection(relevance=relevance, relevance_decay=relevance_decay)
    selection.begin(nodes(4, 4))
    return selection


def learnt(selection, step, aggregated=(0,)):
    w = np.zeros(4, dtype=np.float32)
    selection.learn(FOUR, Outcome(w, aggregated=aggregated, step=np.array(step, dtype=np.float32)))
    return selection


def test_the_share_of_equal_signs():
    """e(u, u') against (+, +, -, 0): 2 of 4, 1 of 4, 1 of 4, 2 of 4; a 0 agrees with a 0 only."""
    last = np.array([3, 0.1, -2, 0], dtype=np.float32)
    np.testing.assert_allclose(relevance(FOUR, last), [0.5, 0.25, 0.25, 0.5])


def test_the_irrelevant_are_withheld():
    """Algorithm 1: an update is sent if e >= v."""
    selection = begun()
    assert sorted(selection.draw(stream(1, "draw"), None)) == [0, 1, 2, 3]
    assert selection.sift(None, FOUR).node_ids == (0, 1, 2, 3)  # no global update yet
    learnt(selection, [3, 0.1, -2, 0])
    assert selection.sift(None, FOUR).node_ids == (0, 3)  # exactly half is enough
    assert learnt(begun(relevance=0.51), [3, 0.1, -2, 0]).sift(None, FOUR).node_ids == ()
    assert learnt(begun(relevance=0), [3, 0.1, -2, 0]).sift(None, FOUR).node_ids == (0, 1, 2, 3)


def test_the_threshold_may_fall_with_the_round():
    """v / sqrt(t): 0.8 in round 1 is 0.8 / sqrt 2 = 0.566 in round 2, 0.46 in round 3; the relevances are
    0.75, 0.75, 0 and 0.5. From 0.9: 0.64, 0.52 and 0.45, so node 3 is sent one round later."""
    for v, rounds in ((0.8, [(0, 1), (0, 1, 3), (0, 1, 3)]), (0.9, [(0, 1), (0, 1), (0, 1, 3)])):
        selection, sent = begun(relevance=v, relevance_decay="sqrt"), []
        for _ in range(3):
            sent.append(learnt(selection, [1, 1, 1, -1]).sift(None, FOUR).node_ids)
        assert sent == rounds


def test_a_round_in_which_nobody_sent_changes_nothing():
    selection = learnt(begun(), [1, 1, 1, 1])
    learnt(selection, [0, 0, 0, 0], aggregated=())
    assert selection.state_dict()["last"].tolist() == [1, 1, 1, 1] and selection.state_dict()["round"] == 2


def test_averaged_buffers_have_no_sign_to_compare():
    """The last number of each row is a buffer (`buffers: average`): of the two parameters, both agree."""
    assert relevance(updates([[1, 1, -1]], buffers=1), np.array([3, 2, 5], dtype=np.float32)).tolist() == [1.0]


def test_one_node_and_defaults():
    selection = RelevantSelection(relevance=0.5)
    selection.begin(nodes(1, 1))
    learnt(selection, [1, 1, 1, 1])
    assert selection.sift(None, FOUR.subset([2])).node_ids == ()
    assert selection.sift(None, FOUR.subset([0])).node_ids == (0,)
    with pytest.raises(ValueError, match="less than or equal"):
        RelevantSelection(relevance=1.1)
    assert RelevantSelection().relevance == 0.8 and RelevantSelection.downloads == 2  # the model and u'
    assert RelevantSelection().relevance_decay == "sqrt"


def test_against_a_plain_loop():
    """400 random updates with zeros in them."""
    rng = np.random.default_rng(10)
    for _ in range(400):
        n, t = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        found, last = updates(rng.integers(-2, 3, (3, n))), rng.integers(-2, 3, n).astype(np.float32)
        selection, v = begun(relevance=float(rng.random()), relevance_decay="sqrt"), 0.0
        selection.load_state_dict({"last": last, "round": np.array(t - 1)})
        v, expected = selection.relevance / t**0.5, []
        for i in range(3):
            agree = 0
            for j in range(n):
                u, g = float(found.deltas[i, j]), float(last[j])
                agree += (u > 0 and g > 0) or (u < 0 and g < 0) or (u == 0 and g == 0)
            if agree / n >= v:
                expected.append(i)
        assert selection.sift(None, found).node_ids == tuple(expected)
