"""GPFL (Na et al. 2024): projections, rewards and the confidence bound, by hand and by oracle."""

import math

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Nodes, Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.gpfl import ProjectionSelection, improvement, projections, schedule, softmax
from tests.strategies.made import updates

DIFFERENCES = (
    "The projection is that of whole vectors, as the paper writes it; the released code takes the mean of the "
    "projections of every tensor of the model.",
    "The warm-up draws |S_t| nodes a round until each was drawn; the released code draws more at once, so that it "
    "lasts a given number of rounds.",
    "Of equal bounds the lowest id is drawn; in the released code the highest.",
    "Where rounds are tested less often (`evaluate_every`), those that are not bring no reward.",
    "No momentum in local training, which the paper uses; `optimizer` has it.",
)


def begun(count=4, per_round=2, **more):
    selection = ProjectionSelection(**more)
    selection.begin(Nodes(np.full(count, 10), np.zeros(count, dtype=bool), per_round))
    return selection


def step(direction):
    return Outcome(np.zeros(1, dtype=np.float32), step=np.array(direction, dtype=np.float32))


def played(selection, rows, ids, direction, accuracy, loss=1.0):
    selection.learn(updates(rows, ids=ids), step(direction))
    selection.hear(accuracy, loss)
    return selection


def test_projections_by_hand():
    """Onto (3, 4), of norm 5: (1, 0) gives 3/5, (0, 10) gives 8, (-3, -4) gives -5."""
    found = projections(updates([[1, 0], [0, 10], [-3, -4]]), np.array([3.0, 4.0], dtype=np.float32))
    np.testing.assert_allclose(found, [0.6, 8, -5])
    assert projections(updates([[1, 0]]), np.zeros(2, dtype=np.float32)).tolist() == [0]  # the model did not move
    with_buffer = projections(updates([[1, 0, 7]], buffers=1), np.array([3.0, 4.0, 9.0], dtype=np.float32))
    np.testing.assert_allclose(with_buffer, [0.6])


def test_rewards_by_hand():
    """c = 0 and ln 3: softmax 1/4 and 3/4. Accuracy rises from 0: times 1; then falls: times -1."""
    selection = played(begun(), [[0.0], [math.log(3)]], (0, 1), [1.0], accuracy=0.5)
    np.testing.assert_allclose(selection.state_dict()["rewards"], [0.25, 0.75, 0, 0], rtol=1e-6)
    played(selection, [[0.0], [math.log(3)]], (1, 2), [1.0], accuracy=0.4)
    np.testing.assert_allclose(selection.state_dict()["rewards"], [0.25, 0.5, -0.75, 0], rtol=1e-6)
    played(selection, [[2.0], [2.0]], (0, 3), [1.0], accuracy=0.4, loss=0.9)  # equal accuracy, lower loss: 1/2
    np.testing.assert_allclose(selection.state_dict()["rewards"], [0.5, 0.5, -0.75, 0.25], rtol=1e-6)
    assert selection.state_dict()["draws"].tolist() == [2, 2, 1, 1]


def test_improvement():
    assert [improvement(*pair) for pair in ((0.1, 9), (-0.1, -9), (0, -1), (0, 1), (0, 0))] == [1, -1, 0.5, -0.5, 0]
    assert improvement(math.nan, -1) == 0.5 and improvement(math.nan, 1) == -0.5  # a regression has no accuracy


def test_the_bound_by_hand():
    """Rewards 0.6 in 2 draws: mean 0.6 / 3 (the first reward is 0). t = 4: a_t = 0.04, sqrt(2 ln 4 / 2)."""
    selection = begun()
    assert {key: float(selection.state_dict()[key]) for key in ("round", "accuracy", "loss")} == {
        "round": 0, "accuracy": 0, "loss": math.inf,
    }  # fmt: skip
    for accuracy in (0.1, 0.2, 0.3, 0.4):
        played(selection, [[1.0]], (0,) if accuracy < 0.25 else (1,), [1.0], accuracy)
        if accuracy == 0.1:
            assert selection.bounds(np.array([0])).tolist() == [0.5]  # t = 1: ln 1 = 0
    np.testing.assert_allclose(selection.bounds(np.array([0])), [2 / 3 + 0.04 * math.sqrt(math.log(4))])
    constant = begun(bandit="constant", bandit_weight=2.0)
    for accuracy in (0.1, 0.2, 0.3, 0.4):
        played(constant, [[1.0]], (0,), [1.0], accuracy)
    np.testing.assert_allclose(constant.bounds(np.array([0])), [4 / 5 + 2 * math.sqrt(2 * math.log(4) / 4)])
    assert [schedule(t) for t in (1, 50, 99, 100, 300)] == [0.01, 0.5, 0.99, 1.0, 0.5]


def test_against_the_released_rule():
    """PBFL's `gpfl.py` on a model of one tensor: the same rewards, means and draws over 30 rounds, 20 times."""
    for case in range(20):
        rng, count, k = stream(case, "case"), 6, 2
        selection = begun(count, k)
        rewards, chosen_count, before = [[0.0] for _ in range(count)], [0] * count, (0.0, 1e6)
        for t in range(30):
            drawn = sorted(selection.draw(stream(t, "draw"), None))
            if t >= 3:  # the warm-up of 6 / 2 rounds is over
                mean = [sum(own) / len(own) for own in rewards]
                a = t / 100
                bound = [mean[i] + a * math.sqrt(2 * math.log(t) / chosen_count[i]) for i in range(count)]
                assert drawn == sorted(sorted(range(count), key=lambda i: -bound[i])[:k])
            rows, direction = rng.standard_normal((k, 3)), rng.standard_normal(3)
            test = (round(float(rng.random()), 1), float(rng.random()))
            played(selection, rows, drawn, direction, *test)
            norm = math.sqrt(sum(x * x for x in direction.astype(np.float32).astype(float)))
            c = [sum(x * y for x, y in zip(row, direction.astype(np.float32), strict=True)) / norm
                 for row in rows.astype(np.float32).astype(float)]  # fmt: skip
            improved = np.sign(test[0] - before[0]) or -0.5 * np.sign(test[1] - before[1])
            for node, own in zip(drawn, c, strict=True):
                chosen_count[node] += 1
                rewards[node].append(improved * math.exp(own) / sum(math.exp(x) for x in c))
            before = test
        found = selection.state_dict()["rewards"]
        np.testing.assert_allclose(found, [sum(own) for own in rewards], rtol=1e-5, atol=1e-6)


def test_every_node_is_drawn_once_first():
    selection, seen = begun(5, 2), []
    for t in range(3):
        drawn = selection.draw(stream(t, "draw"), None)
        seen += drawn
        played(selection, np.ones((2, 1)), sorted(drawn), [1.0], 0.5)
    assert sorted(set(seen)) == [0, 1, 2, 3, 4] and len(seen) == 6
    assert len({tuple(begun(5, 2).draw(stream(t, "draw"), None)) for t in range(50)}) > 5  # in random order


def test_an_untested_round_brings_no_reward():
    selection = begun()
    selection.learn(updates([[1.0]], ids=(0,)), step([1.0]))
    played(selection, [[1.0]], (1,), [1.0], 0.5)
    assert selection.state_dict()["rewards"].tolist() == [0, 1, 0, 0]
    selection.hear(0.9, 0.1)  # nothing is paid twice
    assert selection.state_dict()["rewards"].tolist() == [0, 1, 0, 0]
    for one in (selection, begun()):  # nothing is owed
        assert one.state_dict()["drawn"].tolist() == [] == one.state_dict()["projected"].tolist()
    first = begun()
    first.hear(0.9, 0.1)  # a test before the first round
    assert not first.state_dict()["rewards"].any()


def test_edges_and_restored_state():
    assert softmax(np.zeros(0)).tolist() == [] and softmax(np.array([1e4, 1e4])).tolist() == [0.5, 0.5]
    one = begun(1, 1)
    for t in range(3):
        assert one.draw(stream(t, "draw"), None) == [0]
        played(one, np.zeros((1, 1)), (0,), [0.0], 0.1)
    assert sorted(begun(2, 5).draw(stream(1, "draw"), None)) == [0, 1]
    selection, twin = begun(), begun()
    for t in range(5):
        drawn = sorted(selection.draw(stream(t, "draw"), None))
        played(selection, stream(t, "case").standard_normal((2, 2)), drawn, [1.0, 2.0], t / 10)
    selection.learn(updates([[1.0, 1.0]], ids=(0,)), step([1.0, 2.0]))
    twin.load_state_dict(selection.state_dict())
    for one in (selection, twin):
        one.hear(0.9, 0.1)
    assert selection.draw(stream(9, "draw"), None) == twin.draw(stream(9, "draw"), None)
    np.testing.assert_array_equal(selection.state_dict()["rewards"], twin.state_dict()["rewards"])
    assert pytest.approx(1.0) == softmax(np.array([1.0, 2.0, 3.0])).sum()
