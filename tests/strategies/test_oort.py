"""Oort: utilities, exploration, cut-off and pacer of Lai et al. 2021, by hand."""

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.oort import OortSelection
from tests.strategies.made import Asked, devices, nodes, updates

NOTHING = Outcome(np.zeros(1, dtype=np.float32))


def begun(count=4, per_round=2, model=None, **parameters):
    selection = OortSelection(**parameters)
    selection.begin(nodes(count, per_round, model=model))
    return selection


def heard(selection, ids, losses, **more):
    selection.learn(updates([[0]] * len(ids), ids=ids, losses=losses, **more), NOTHING)
    return selection


def test_utilities_by_hand():
    """|B| x loss is 100 x (1, 3); brought to 0 .. 1: 0 and 1. R = 3, L = 1 and 2: bonuses sqrt(0.1 ln 3 / L)."""
    selection = heard(heard(begun(), [0], [1.0]), [1], [3.0])
    bonus = np.sqrt(0.1 * np.log(3) / np.array([1, 2]))
    np.testing.assert_allclose(selection.utilities(np.array([0, 1])), [bonus[0], 1 + bonus[1]])


def test_slow_nodes_are_penalised():
    """T is the 30th percentile of 1 s and 4 s: 1 s. Node 1 takes 4 T: its utility falls by (1/4)^2."""
    selection = begun(model=devices([1] * 4, [1] * 4))
    heard(heard(selection, [0], [1.0], seconds=np.array([1.0])), [1], [3.0], seconds=np.array([4.0]))
    bonus = np.sqrt(0.1 * np.log(3) / np.array([1, 2]))
    assert selection.preferred_seconds() == 1
    np.testing.assert_allclose(selection.utilities(np.array([0, 1])), [bonus[0], (1 + bonus[1]) / 16])


def test_utility_is_clipped_at_the_95th_percentile():
    """Of 21 nodes the one at position int(21 x 0.95) = 19 gives the clip: the outlier is worth no more."""
    selection = begun(21, 2)
    heard(selection, list(range(21)), [1.0] * 10 + [2.0] * 10 + [101.0])
    scaled = selection.utilities(np.arange(21)) - np.sqrt(0.1 * np.log(2))
    np.testing.assert_allclose(scaled, [0] * 10 + [0.01] * 11, atol=1e-12)


def test_exploration_shrinks_and_ends():
    """K = 10, epsilon 0.9 at first and 0.9 x 0.98^t later, at least 0.2; in round 1 nobody is known."""
    selection = begun(1000, 10)
    assert len(set(selection.draw(stream(1, "draw", 1), None))) == 10
    for t in range(1, 101):
        drawn = selection.draw(stream(1, "draw", t), None)
        known = selection.state_dict()["last"] > 0
        epsilon = max(0.9 * 0.98 ** (t - 1), 0.2)
        assert len(set(drawn)) == 10
        assert known[drawn].sum() == (0 if t == 1 else int(10 * (1 - epsilon) + 1e-9))
        heard(selection, sorted(drawn), [1.0 + node % 7 for node in sorted(drawn)])
    small = heard(begun(4, 2), [0, 1, 2, 3], [1, 2, 3, 4])
    assert len(set(small.draw(stream(1, "draw", 2), None))) == 2  # nobody is left to explore


def test_the_useful_are_exploited():
    """epsilon 0: the two highest, and with a cut-off of 1 nobody in their place."""
    selection = heard(begun(exploration=0, exploration_floor=0, cutoff=1.0), [0, 1, 2, 3], [1.0, 5.0, 2.0, 4.0])
    assert {tuple(sorted(selection.draw(stream(1, "draw", t), None))) for t in range(20)} == {(1, 3)}
    loose = heard(begun(exploration=0, exploration_floor=0, cutoff=0.3), [0, 1, 2, 3], [1.0, 5.0, 2.0, 4.0])
    assert len({tuple(sorted(loose.draw(stream(1, "draw", t), None))) for t in range(50)}) > 1


def test_fast_nodes_are_explored_first():
    """Training 9 s and 1 s, upload 1 s: 10 s against 2 s, so the fast one is tried five times out of six."""
    model = devices([100 / 9, 100], [1000, 1000])
    selection = begun(2, 1, model)
    drawn = [selection.draw(stream(1, "draw", t), Asked(resources=model.resources(t)))[0] for t in range(3000)]
    assert np.mean(drawn) == pytest.approx(5 / 6, abs=0.02)


def test_the_pacer_lets_slower_nodes_in_when_utility_falls():
    selection = begun(pace_window=2)
    for loss in (5.0, 5.0, 1.0):
        heard(selection, [0], [loss])
        assert selection.state_dict()["pace"] == 30
    heard(selection, [0], [1.0])  # 10 before, 2 now
    assert selection.state_dict()["pace"] == 40
    for _ in range(2):
        heard(selection, [0], [9.0])  # 2 before, 18 now
    assert selection.state_dict()["pace"] == 40


def test_equal_losses_zero_losses_and_one_node():
    equal = heard(begun(exploration=0, exploration_floor=0), [0, 1, 2, 3], [2.0] * 4)
    drawn = np.concatenate([equal.draw(stream(1, "draw", t), None) for t in range(2000)])
    np.testing.assert_allclose(np.bincount(drawn) / 2000, 0.5, atol=0.04)
    zero = heard(begun(exploration=0, exploration_floor=0), [0, 1, 2, 3], [0.0] * 4)
    assert len(set(zero.draw(stream(1, "draw", 1), None))) == 2
    broken = heard(begun(exploration=0, exploration_floor=0), [0, 1, 2, 3], [np.nan, np.inf, 1.0, 2.0])
    assert set(broken.draw(stream(1, "draw", 1), None)) == {2, 3}
    one = begun(1, 1)
    assert one.draw(stream(1, "draw", 1), None) == [0]
    assert heard(one, [0], [1.0]).draw(stream(1, "draw", 2), None) == [0]
