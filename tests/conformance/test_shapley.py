"""Shapley values, and the draws of GreedyFed (Singhal et al. 2024) and S-FedAvg (Nagalapatti and Narayanam 2021)."""

import itertools
import math

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Nodes
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.shapley import ShapleySelection, gtg_shapley
from tests.strategies.made import updates

DIFFERENCES = (
    "A fixed number of orders per round; the released code goes on until the values stand still, at most 50 per node.",
    "No set of updates is evaluated twice in a round; the released code evaluates sets again.",
    "S-FedAvg's relevance takes the Shapley value of the round, as its paper says; GreedyFed's takes the mean.",
    "Sent updates have equal weight in the model and weights by data size in Shapley values; the released code weighs "
    "by data size in both, and its S-FedAvg also divides by the probability.",
    "S-FedAvg's values are those of GTG-Shapley, too; the released code evaluates every set of the round's updates.",
    "Values are minus the loss on test samples drawn each round (Check Loss); in the papers, on a validation set.",
)


def begun(count=4, per_round=2, **more):
    selection = ShapleySelection(**more)
    selection.begin(Nodes(np.full(count, 10), np.zeros(count, dtype=bool), per_round))
    return selection


def exact(count, value):
    """The definition: the mean marginal gain over all orders."""
    gains = [0.0] * count
    for order in itertools.permutations(range(count)):
        for k, player in enumerate(order):
            gains[player] += value(frozenset(order[: k + 1])) - value(frozenset(order[:k]))
    return [gain / math.factorial(count) for gain in gains]


def game(seed, count):
    """A random value for every set; the empty one is worth 0."""
    worth = {}
    for k, kept in enumerate(
        itertools.chain.from_iterable(itertools.combinations(range(count), r) for r in range(count + 1))
    ):
        worth[frozenset(kept)] = 0.0 if not kept else float(stream(seed, "worth", k).normal())
    return worth.__getitem__


def test_a_game_by_hand():
    """v({0}) = 1, v({1}) = 2, v({0, 1}) = 4. Orders 01: 1 and 3; 10: 2 and 2. Shapley values 1.5 and 2.5."""
    worth = {frozenset(): 0.0, frozenset({0}): 1.0, frozenset({1}): 2.0, frozenset({0, 1}): 4.0}
    assert gtg_shapley(stream(1, "x"), 2, worth.__getitem__, 1, 0.0).tolist() == [1.5, 2.5]
    assert exact(2, worth.__getitem__) == [1.5, 2.5]


def test_truncation_by_hand():
    """The same game less 2, cut at 4. All gain 4, which is not less. Order 01: 1, then 3 are left and count as 0; order
    10: 2, then 0. Means 0.5 and 1. Cut at 4.5, nobody gains anything."""
    worth = {frozenset(): -2.0, frozenset({0}): -1.0, frozenset({1}): 0.0, frozenset({0, 1}): 2.0}
    assert gtg_shapley(stream(1, "x"), 2, worth.__getitem__, 1, 4.0).tolist() == [0.5, 1.0]
    assert gtg_shapley(stream(1, "x"), 2, worth.__getitem__, 1, 4.5).tolist() == [0.0, 0.0]


def test_many_orders_come_near_the_definition():
    """Each node leads equally often; the rest is random: with 400 x 3 orders, within a few hundredths."""
    for seed in range(5):
        value = game(seed, 3)
        np.testing.assert_allclose(gtg_shapley(stream(seed, "x"), 3, value, 400, 0.0), exact(3, value), atol=0.12)


def test_gains_add_up_whatever_the_orders():
    for seed in range(100):
        count = 1 + seed % 5
        value = game(seed, count)
        found = gtg_shapley(stream(seed, "x"), count, value, 2, 0.0)
        assert found.sum() == pytest.approx(value(frozenset(range(count))) - value(frozenset()))


def test_against_the_released_rule():
    """`server.py: shapley_values_gtg`, for the same orders, with its truncation: running means in plain loops."""
    for seed in range(200):
        count, repeats, cut = 1 + seed % 5, 1 + seed % 2, float(stream(seed, "cut").choice([0.0, 0.3, 3.0]))
        value, rng = game(seed, count), stream(seed, "x")
        start, end = value(frozenset()), value(frozenset(range(count)))
        phi = [0.0] * count
        for t, leader in enumerate([*range(count)] * repeats if abs(end - start) >= cut else [], 1):
            order = [leader, *rng.permutation([k for k in range(count) if k != leader]).astype(int).tolist()]
            v = start
            for j, player in enumerate(order):
                after = v if abs(end - v) < cut else value(frozenset(order[: j + 1]))
                phi[player] = ((t - 1) * phi[player] + (after - v)) / t
                v = after
        np.testing.assert_allclose(gtg_shapley(stream(seed, "x"), count, value, repeats, cut), phi, atol=1e-12)


def test_no_set_is_evaluated_twice():
    asked = []

    def value(kept):
        asked.append(kept)
        return float(len(kept))

    gtg_shapley(stream(1, "x"), 4, value, 5, 0.0)
    assert len(asked) == len(set(asked)) <= 16
    assert gtg_shapley(stream(1, "x"), 2, lambda kept: math.nan, 1, 1e-4).tolist() == [0, 0]


def loss_of(weights, *, samples, first):
    """The distance from 1; better the nearer."""
    assert samples == 128 and not first
    return float(abs(1 - weights[0]))


def appraised(selection, rows, ids, sizes=None):
    selection.appraise(stream(1, "x"), np.zeros(1, dtype=np.float32), updates(rows, ids=ids, sizes=sizes), loss_of)
    return selection


def test_the_value_of_updates_by_hand():
    """From w = 0 (loss 1, v = -1): +1 alone reaches loss 0, -1 alone loss 2, both of equal size loss 1: v = 0, -2, -1.
    Orders: +1 then -1: +1, -1; -1 then +1: -1, +1. Shapley values 1 and -1, but for the truncation."""
    selection = appraised(begun(), [[1.0], [-1.0]], (0, 1))
    assert selection.state_dict()["values"].tolist() == [0, 0, 0, 0]  # nothing is gained together: truncated
    """Sizes 3 and 1: together (3 - 1) / 4 = 0.5: loss 0.5, v = -0.5. Orders: 1, -0.5; -1, 1.5: means 1.25 and -0.75."""
    selection = appraised(begun(), [[1.0], [-1.0]], (0, 1), sizes=[3, 1])
    np.testing.assert_allclose(selection.state_dict()["values"], [1.25, -0.75, 0, 0])
    assert selection.notes() == {"shapley_evaluations": 4} and begun().notes() == {"shapley_evaluations": 0}
    assert (ShapleySelection().permutations, ShapleySelection().truncation) == (2, 1e-4)


def test_greedy_keeps_means():
    """GreedyFed: the mean over a node's rounds. Alone, +1 gains 1, and +0.5 gains 0.5."""
    selection = appraised(appraised(begun(), [[1.0]], (2,)), [[0.5]], (2,))
    np.testing.assert_allclose(selection.state_dict()["values"], [0, 0, 0.75, 0])
    assert selection.state_dict()["draws"].tolist() == [0, 0, 2, 0]


def test_greedy_goes_round_and_then_takes_the_best():
    selection, gains = begun(5, 2), [0.1, 0.9, 0.3, 0.8, 0.2]
    seen = []
    for t in range(4):
        drawn = selection.draw(stream(t, "draw"), None)
        seen.append(drawn)
        for node in drawn:
            appraised(selection, [[gains[node]]], (node,))
    assert seen[:2] == [[0, 1], [2, 3]] and seen[2][0] == 4 and len(set(seen[2])) == 2
    assert seen[3] == [1, 3]


def test_ties_are_broken_at_random():
    selection = begun(4, 1)
    for node in range(4):
        appraised(selection, [[0.5]], (node,))
    drawn = [selection.draw(stream(t, "draw"), None)[0] for t in range(800)]
    np.testing.assert_allclose(np.bincount(drawn) / 800, 0.25, atol=0.06)


def test_softmax_by_hand():
    """S-FedAvg: phi starts at 1/4; 0.75 x 0.25 + 0.25 x 1 = 0.4375 for a gain of 1. Draws by e^phi."""
    selection = appraised(begun(rule="softmax"), [[1.0]], (2,))
    np.testing.assert_allclose(selection.state_dict()["values"], [0.25, 0.25, 0.4375, 0.25])
    steep = begun(2, 1, rule="softmax", gain=math.log(3), retention=0.0)
    appraised(appraised(steep, [[1.0]], (0,)), [[0.0]], (1,))  # phi = ln 3 and 0: 3 to 1
    drawn = [steep.draw(stream(t, "draw"), None)[0] for t in range(3000)]
    assert np.mean(drawn) == pytest.approx(0.25, abs=0.03)
    assert (ShapleySelection().retention, ShapleySelection().gain) == (0.75, 0.25)  # the paper's alpha and beta
    far = begun(2, 1, rule="softmax")
    far.load_state_dict({**far.state_dict(), "values": np.array([0.0, 800.0])})
    assert far.draw(stream(1, "draw"), None) == [1]  # e^800 is no float64


@pytest.mark.parametrize("rule", ["greedy", "softmax"])
def test_edges_and_restored_state(rule):
    assert begun(1, 1, rule=rule).draw(stream(1, "draw"), None) == [0]
    assert sorted(begun(2, 5, rule=rule).draw(stream(1, "draw"), None)) == [0, 1]
    one, two = begun(rule=rule), begun(rule=rule)
    appraised(one, np.zeros((0, 1)), ())  # nobody returned
    appraised(one, [[0.0], [0.0]], (0, 1))  # zero norms
    appraised(one, [[0.5], [0.2], [0.1]], (1, 2, 3), sizes=[1, 2, 3])
    two.load_state_dict(one.state_dict())
    assert [one.draw(stream(t, "draw"), None) for t in range(9)] == [
        two.draw(stream(t, "draw"), None) for t in range(9)
    ]
