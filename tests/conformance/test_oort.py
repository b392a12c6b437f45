"""Oort: Algorithm 1 of Lai et al. 2021, by hand and against the released rule."""

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.oort import OortSelection
from tests.conformance.oracles.oort import percentile, utilities
from tests.strategies.made import Asked, devices, nodes, updates

DIFFERENCES = (
    "A node reports its mean loss, used as the root of its mean squared loss in |B| sqrt(mean of loss^2). FedScale's "
    "code takes the loss of the last mini-batch only.",
    "Statistical utility is scaled from its smallest value to its largest; the released code begins at 0.999 times the "
    "smallest. Where all are equal, all are 1.",
    "The cut-off is relative to the last node that is exploited, as in the paper; the released code takes the one "
    "after it.",
    "T is a percentile of the durations known so far; the released code has a duration for every node from the start, "
    "and no T at all at the 100th percentile.",
    "The pacer is the paper's: T is raised when the utility of recent rounds falls. The released code raises it when "
    "utility is flat within 10 %, and lowers it when utility changes fivefold.",
    "Unexplored nodes are drawn by speed, as the paper says; the released code draws by their number of samples, with "
    "a penalty for slow ones, out of a window.",
    "epsilon is 0.9 in round 1 and decays after it; the released code decays it before its first use.",
    "No node is blacklisted, and no more nodes are drawn than are waited for.",
)
NOTHING = Outcome(np.zeros(1, dtype=np.float32))


def begun(count=4, per_round=2, model=None, **parameters):
    selection = OortSelection(**parameters)
    selection.begin(nodes(count, per_round, model=model))
    return selection


def heard(selection, ids, losses, **more):
    selection.learn(updates([[0]] * len(ids), ids=ids, losses=losses, **more), NOTHING)
    return selection


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_utilities_by_hand():
    """|B| x loss is 100 x (1, 3); brought to 0 .. 1: 0 and 1. R = 3, L = 1 and 2: bonuses sqrt(0.1 ln 3 / L)."""
    selection = heard(heard(begun(), [0], [1.0]), [1], [3.0])
    bonus = np.sqrt(0.1 * np.log(3) / np.array([1, 2]))
    np.testing.assert_allclose(selection.utilities(np.array([0, 1])), [bonus[0], 1 + bonus[1]])


def test_utility_is_by_samples():
    """Equal losses, 100 and 300 samples: 0 and 1 of the range."""
    selection = heard(begun(), [0, 1], [2.0, 2.0], sizes=[100, 300])
    np.testing.assert_allclose(selection.utilities(np.array([0, 1])) - np.sqrt(0.1 * np.log(2)), [0, 1], atol=1e-12)
    assert [len(selection.state_dict()[key]) for key in ("utility", "last", "seconds")] == [4, 4, 4]


def test_the_preferred_duration_at_its_ends():
    """Nothing is known: 0. At the 100th percentile: the longest."""
    model = devices([1] * 4, [1] * 4)
    assert begun(model=model).preferred_seconds() == 0.0
    assert heard(begun(model=model, pace=100), [0, 1], [1, 1], seconds=np.array([7.0, 3.0])).preferred_seconds() == 7.0


def test_epsilon_is_not_rounded_down():
    """K = 10, epsilon = 0.9: 10 x 0.1 is 1 node, although 10 x (1 - 0.9) is 0.9999999999999998."""
    selection = heard(begun(40, 10, exploration_decay=1.0), list(range(20)), np.arange(20) + 1.0)
    assert sum(node < 20 for node in selection.draw(stream(1, "draw", 2), None)) == 1


def test_slow_nodes_are_penalised():
    """T is the 30th percentile of 1 s and 4 s: 1 s. Node 1 takes 4 T: its utility falls by (1/4)^2."""
    selection = begun(model=devices([1] * 4, [1] * 4))
    heard(heard(selection, [0], [1.0], seconds=np.array([1.0])), [1], [3.0], seconds=np.array([4.0]))
    bonus = np.sqrt(0.1 * np.log(3) / np.array([1, 2]))
    assert selection.preferred_seconds() == 1 == selection.notes()["preferred_seconds"] and begun().notes() == {}
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
    for t in range(1, 91):
        drawn = selection.draw(stream(1, "draw", t), None)
        known = selection.state_dict()["last"] > 0
        epsilon = max(0.9 * 0.98 ** (t - 1), 0.2)
        assert len(set(drawn)) == 10
        assert known[drawn].sum() == (0 if t == 1 else int(10 * (1 - epsilon) + 1e-9))
        heard(selection, sorted(drawn), [1.0 + node % 7 for node in sorted(drawn)])
    small = heard(begun(4, 2), [0, 1, 2, 3], [1, 2, 3, 4])
    assert len(set(small.draw(stream(1, "draw", 2), None))) == 2  # nobody is left to explore


def test_the_useful_are_exploited():
    """epsilon 0: the two highest, and with a cut-off of 1 nobody in their place. Utilities are 0, 1, 1/4 and 3/4 plus
    the bonus 0.263: with a cut-off of 0.5 the third, 0.513, is above half of the second, 1.013."""
    selection = heard(begun(exploration=0, exploration_floor=0, cutoff=1.0), [0, 1, 2, 3], [1.0, 5.0, 2.0, 4.0])
    assert {tuple(sorted(selection.draw(stream(1, "draw", t), None))) for t in range(20)} == {(1, 3)}
    loose = heard(begun(exploration=0, exploration_floor=0, cutoff=0.5), [0, 1, 2, 3], [1.0, 5.0, 2.0, 4.0])
    assert {tuple(sorted(loose.draw(stream(1, "draw", t), None))) for t in range(50)} == {(1, 3), (1, 2), (2, 3)}


def test_fast_nodes_are_explored_first():
    """Training 9 s and 1 s, upload 1 s: 10 s against 2 s, so the fast one is tried five times out of six."""
    model = devices([100 / 9, 100], [1000, 1000])
    selection = begun(2, 1, model)
    drawn = [selection.draw(stream(1, "draw", t), Asked(resources=model.resources(t)))[0] for t in range(1500)]
    assert np.mean(drawn) == pytest.approx(5 / 6, abs=0.03)


def test_the_pacer_lets_slower_nodes_in_when_utility_falls():
    """Algorithm 1, lines 8-9: the sum over the last W rounds against the W before them, here W = 2."""
    selection = begun(pace_window=2)
    for loss in (5.0, 5.0, 1.0):
        heard(selection, [0], [loss])
        assert selection.state_dict()["pace"] == 30
    heard(selection, [0], [1.0])  # 10 before, 2 now
    assert selection.state_dict()["pace"] == 40
    heard(selection, [0], [2.0])  # not at the end of a window
    assert selection.state_dict()["pace"] == 40
    heard(selection, [0], [0.0])  # 2 before, 2 now: it has not fallen
    assert selection.state_dict()["pace"] == 40
    for _ in range(40):
        heard(selection, [0], [1e9 / (1 + selection.state_dict()["round"]) ** 5])
    assert selection.state_dict()["pace"] == 100


def test_equal_losses_zero_losses_and_one_node():
    equal = heard(begun(exploration=0, exploration_floor=0), [0, 1, 2, 3], [2.0] * 4)
    np.testing.assert_allclose(equal.utilities(np.arange(4)), 1 + np.sqrt(0.1 * np.log(2)))
    drawn = np.concatenate([equal.draw(stream(1, "draw", t), None) for t in range(1000)])
    np.testing.assert_allclose(np.bincount(drawn) / 1000, 0.5, atol=0.06)
    zero = heard(begun(exploration=0, exploration_floor=0), [0, 1, 2, 3], [0.0] * 4)
    assert len(set(zero.draw(stream(1, "draw", 1), None))) == 2
    broken = heard(begun(exploration=0, exploration_floor=0), [0, 1, 2, 3], [np.nan, np.inf, 1.0, 2.0])
    assert set(broken.draw(stream(1, "draw", 1), None)) == {2, 3}
    one = begun(1, 1)
    assert one.draw(stream(1, "draw", 1), None) == [0]
    assert heard(one, [0], [1.0]).draw(stream(1, "draw", 2), None) == [0]
    assert sorted(begun(2, 5).draw(stream(1, "draw", 1), None)) == [0, 1]  # fewer than asked


def test_defaults():
    """Section 4 and 7 of the paper: epsilon 0.9, 0.98, 0.2; alpha 2; c 95 %; W 20 rounds."""
    made = OortSelection()
    assert (made.exploration, made.exploration_decay, made.exploration_floor) == (0.9, 0.98, 0.2)
    assert (made.penalty, made.cutoff, made.pace, made.pace_step, made.pace_window) == (2.0, 0.95, 30.0, 10.0, 20)


# --- by oracle -------------------------------------------------------------------------------------------------------


def test_the_released_utility():
    """300 random histories; the one difference of the score, 0.999, is set to 1."""
    rng = np.random.default_rng(19)
    for _ in range(300):
        count, rounds = int(rng.integers(2, 30)), int(rng.integers(1, 6))
        selection = begun(count, 1, devices(np.ones(count), np.ones(count)), penalty=float(rng.uniform(0, 3)))
        rewards, seen_in, seconds = {}, {}, {}
        for t in range(1, rounds + 1):
            drawn = sorted(rng.choice(count, int(rng.integers(1, count + 1)), replace=False).tolist())
            losses, took = rng.exponential(size=len(drawn)), rng.exponential(size=len(drawn))
            heard(selection, drawn, losses, seconds=took)
            rewards |= {node: 100 * float(loss) for node, loss in zip(drawn, losses, strict=True)}
            seen_in |= dict.fromkeys(drawn, t)
            seconds |= dict(zip(drawn, took.tolist(), strict=True))
        seen = sorted(rewards)
        if len(seen) < 2:
            continue
        preferred = percentile(list(seconds.values()), 30)
        columns = ([column[node] for node in seen] for column in (rewards, seen_in, seconds))
        expected = utilities(*columns, rounds + 1, preferred, selection.penalty, lowest=1.0)
        assert selection.preferred_seconds() == preferred
        np.testing.assert_allclose(selection.utilities(np.array(seen)), expected, rtol=1e-9)
