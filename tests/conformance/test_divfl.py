"""DivFL: G(S) of Balakrishnan et al. 2022, sum over k of min over i in S of ||g_k - g_i||, by hand and by oracle."""

import itertools

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Nodes, Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.divfl import DiverseSelection, facility_location
from tests.conformance.oracles.divfl import released_greedy, uncovered
from tests.strategies.made import updates

DIFFERENCES = (
    "Round 1 takes one local training from every node, not one full gradient: the server sees what is sent anyway.",
    "A node that did not return in round 1 is asked again; in the released code none is ever missing.",
    "With |S_t| = 1 as otherwise, updates are the last known ones; the released code then takes fresh gradients from "
    "all nodes in every round.",
    "Greedy search looks at every remaining node; the released lazy greedy search skips some and finds the same set.",
    "Sent updates have equal weight; the released code weighs them by data size.",
    "A tie goes to the lowest id; in the released code to whatever a Python set or argsort returns first.",
)

NOTHING = Outcome(np.zeros(1, dtype=np.float32))


def begun(count, per_round, parameters=2, **more):
    selection = DiverseSelection(**more)
    selection.begin(Nodes(np.full(count, 10), np.zeros(count, dtype=bool), per_round, parameters=parameters))
    return selection


def taught(rows, per_round, **more):
    rows = np.array(rows, dtype=np.float32)
    selection = begun(len(rows), per_round, rows.shape[1], **more)
    selection.learn(updates(rows), NOTHING)
    return selection


LINE = [[0], [1], [2], [10], [11]]
"""Updates on a line. G({1}) = 1 + 0 + 1 + 9 + 10 = 21, G({2}) = 2 + 1 + 0 + 8 + 9 = 20: node 2 first (Algorithm 1).
Then with node 3: 2 + 1 + 0 + 0 + 1 = 4, with node 4: 2 + 1 + 0 + 1 + 0 = 4; the tie goes to 3. Then node 0: 0 + 1 + 0 +
0 + 1 = 2; node 1: 1 + 0 + 0 + 0 + 1 = 2; the tie goes to 0."""


def test_algorithm_1_by_hand():
    assert taught(LINE, 1).draw(stream(1, "draw"), None) == [2]
    assert taught(LINE, 2).draw(stream(1, "draw"), None) == [2, 3]
    assert taught(LINE, 3).draw(stream(1, "draw"), None) == [2, 3, 0]
    assert taught(LINE, 5).draw(stream(1, "draw"), None)[:3] == [2, 3, 0]


def test_the_norm_is_not_squared_unless_asked():
    """0, 0, 0, 10, 16. Norms: G({0}) = 10 + 16 = 26, G({3}) = 3 x 10 + 6 = 36. Squares: 100 + 256 = 356 against 336."""
    spread = [[0], [0], [0], [10], [16]]
    assert taught(spread, 1).draw(stream(1, "draw"), None) == [0]
    assert taught(spread, 1, distance="squared").draw(stream(1, "draw"), None) == [3]


def test_round_1_asks_everybody_and_aggregates_the_representatives():
    selection = begun(5, 2, 1)
    assert selection.draw(stream(1, "draw"), None) == [0, 1, 2, 3, 4] and selection.gathers()
    sent = selection.sift(stream(1, "sift"), updates(LINE))
    assert sent.node_ids == (2, 3) and sent.shares is None
    selection.learn(updates(LINE[:3], ids=(0, 2, 4)), NOTHING)
    assert selection.draw(stream(1, "draw"), None) == [1, 3]  # those that did not return are asked again
    selection.learn(updates([[7]], ids=(3,)), NOTHING)
    assert selection.draw(stream(1, "draw"), None) == [1, 2]  # of 0, 1, 7, 2: 1 + 0 + 6 + 1 = 8 is the least (node 2)
    assert selection.sift(stream(1, "sift"), updates([[5], [7]], ids=(1, 3))).node_ids == (1, 3)


def test_one_more_than_are_aggregated():
    """Of 0, 1 and 5 the two that leave least: 1 (1 + 4 = 5, against 6 and 9), then 5."""
    assert begun(3, 2, 1).sift(stream(1, "sift"), updates([[0], [1], [5]])).node_ids == (1, 2)
    assert begun(3, 2).trains(2) > 10**9  # however many nodes there are


def test_fresh_gradients_are_asked_of_everybody_in_every_round():
    selection = taught(LINE, 2, gradients="fresh")
    assert selection.draw(stream(1, "draw"), None) == [0, 1, 2, 3, 4]
    assert selection.sift(stream(1, "sift"), updates([[9], [0], [0], [0], [9]])).node_ids == (0, 1)


def test_last_updates_are_replaced_when_a_node_trains_again():
    selection = taught([[0, 0], [1, 0], [50, 0], [51, 0]], 2)
    assert selection.draw(stream(1, "draw"), None) == [1, 2]  # 1: 1 + 49 + 50 = 100, as 2; then 2: 1 + 0 + 0 + 1
    selection.learn(updates([[50, 0], [0, 30]], ids=(1, 3)), NOTHING)  # now (0,0) (50,0) (50,0) (0,30)
    assert set(selection.draw(stream(1, "draw"), None)) == {0, 1}


def test_only_the_end_of_updates_is_compared_where_the_last_layer_is_remembered():
    """The model ends in a layer of 1 output and 1 input: 2 numbers. The others differ and do not count."""
    selection = DiverseSelection(remembered="last-layer")
    selection.begin(Nodes(np.full(3, 10), np.zeros(3, dtype=bool), 1, parameters=3, last_layer=(1, 1)))
    selection.learn(updates([[90, 0, 0], [-90, 1, 0], [0, 3, 0]]), NOTHING)
    assert selection.draw(stream(1, "draw"), None) == [1]  # 1 + 2 = 3, against 4 and 5


@pytest.mark.parametrize("squared", [False, True])
def test_against_the_released_rule(squared):
    """Greedy search of `fedbase.py: greedy` and `stochastic_greedy`, in plain loops, on 200 random populations."""
    for case in range(200):
        rng = stream(case, "case")
        count, size = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        rows = np.round(rng.standard_normal((count, 3)), 2)
        subset = float(rng.choice([1.0, 0.5]))
        selection = taught(rows, size, subset=subset, distance="squared" if squared else "norm")
        drawn = selection.draw(stream(case, "draw"), None)
        looked = max(size, int(subset * count))
        rows32 = rows.astype(np.float32).astype(float).tolist()
        assert drawn == released_greedy(stream(case, "draw"), rows32, size, looked, squared)


def test_greedy_is_close_to_the_best_set():
    """The decrease of G is submodular, so greedy reaches at least 1 - 1/e of the best decrease."""
    for case in range(50):
        rows = stream(case, "case").standard_normal((7, 2)).astype(np.float32).astype(float)
        worst = sum(max(np.linalg.norm(a - b) for b in rows) for a in rows)
        drawn = taught(rows, 3).draw(stream(1, "draw"), None)
        best = min(uncovered(rows.tolist(), list(chosen)) for chosen in itertools.combinations(range(7), 3))
        assert worst - uncovered(rows.tolist(), drawn) >= (1 - 1 / np.e) * (worst - best) - 1e-9


def test_edges():
    assert DiverseSelection().subset == 1  # greedy, not stochastic greedy
    assert begun(1, 1).draw(stream(1, "draw"), None) == [0]
    assert taught([[3, 4]], 1).draw(stream(1, "draw"), None) == [0]
    assert taught([[0], [0], [9]], 2).draw(stream(1, "draw"), None) == [0, 2]  # G falls to 0
    assert taught([[0, 0]] * 4, 2).draw(stream(1, "draw"), None) == [0, 1]  # all equal, zero norms
    assert sorted(taught([[1, 2], [3, 4]], 5).draw(stream(1, "draw"), None)) == [0, 1]  # fewer than asked
    assert facility_location(stream(1, "draw"), np.zeros((2, 2)), np.array([], dtype=np.int64), 2, 2) == []


def test_a_restored_state_has_the_same_future():
    one, two = taught(np.arange(12).reshape(6, 2) ** 2, 3), begun(6, 3)
    two.load_state_dict({key: value.copy() for key, value in one.state_dict().items()})
    for selection in (one, two):
        selection.learn(updates([[7, 7]], ids=(4,)), NOTHING)
    assert one.draw(stream(1, "draw"), None) == two.draw(stream(1, "draw"), None)
