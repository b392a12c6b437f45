"""Power-of-Choice: pow-d, cpow-d and rpow-d of Cho et al. 2020, by hand and against the released rule."""

import numpy as np
import pytest

from fedpns_ray import InputError
from fedpns_ray.core.interfaces import Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.power_of_choice import PowerOfChoiceSelection
from tests.strategies.made import Asked, nodes, updates

DIFFERENCES = (
    "Only the d candidates are asked for their loss, as in the paper; the released code computes the loss of every "
    "node and then looks at d of them.",
    "Ties are broken at random; the released code keeps the order of the candidate draw.",
)
NOTHING = Outcome(np.zeros(1, dtype=np.float32))


def begun(count=6, per_round=2, sizes=None, **parameters):
    selection = PowerOfChoiceSelection(**parameters)
    selection.begin(nodes(count, per_round, sizes))
    return selection


def test_the_highest_losses_of_d_candidates():
    probe = Asked([1, 5, 2, 4, 3, 0])
    assert set(begun(choices=6).draw(stream(1, "draw", 1), probe)) == {1, 3}
    for t in range(30):
        drawn = begun(choices=4).draw(stream(1, "draw", t), probe)
        asked, samples = probe.questions[-1]
        assert len(set(asked)) == 4 and samples is None
        assert set(drawn) == set(sorted(asked, key=lambda node: -probe.losses[node])[:2])


def test_candidates_are_drawn_by_data_size():
    """Step 1: probability p_k without replacement. Sizes 1 : 3, d = 1: node 1 in three rounds of four."""
    selection = begun(2, 1, sizes=[100, 300], choices=1)
    drawn = [selection.draw(stream(1, "draw", t), Asked([0, 0]))[0] for t in range(2000)]
    assert np.mean(drawn) == pytest.approx(0.75, abs=0.03)


def test_equal_losses_are_a_random_draw_and_one_node_is_that_node():
    selection = begun(choices=6)
    drawn = np.concatenate([selection.draw(stream(1, "draw", t), Asked(np.ones(6))) for t in range(1500)])
    np.testing.assert_allclose(np.bincount(drawn) / 1500, 1 / 3, atol=0.05)
    assert begun(1, 1, choices=1).draw(stream(1, "draw", 1), Asked([7])) == [0]


def test_cpow_d_asks_for_a_mini_batch():
    probe = Asked(np.arange(6))
    begun(choices=6, variant="cpow-d", probe_samples=3).draw(stream(1, "draw", 1), probe)
    assert probe.questions[0][1] == 3


def test_rpow_d_asks_nobody_and_tries_the_unknown_first():
    """The loss of a node's last local steps; infinite for a node that was never drawn."""
    selection = begun(choices=6, variant="rpow-d")
    selection.learn(updates([[0]] * 4, ids=(0, 1, 2, 3), losses=[1, 5, 2, 4]), NOTHING)
    assert set(selection.draw(stream(1, "draw", 2), None)) == {4, 5}
    selection.learn(updates([[0]] * 2, ids=(4, 5), losses=[3, 0]), NOTHING)
    assert set(selection.draw(stream(1, "draw", 3), None)) == {1, 3}


def test_defaults_and_refusals():
    made = PowerOfChoiceSelection()
    assert (made.choices, made.variant, made.probe_samples) == (20, "pow-d", 20)
    for choices in (1, 7):
        with pytest.raises(InputError, match=f"choices: {choices} is not allowed; it must be between 2"):
            begun(choices=choices)
    assert begun(choices=2).state_dict()["losses"].tolist() == [np.inf] * 6


def test_the_released_rule():
    """300 random rounds: of the candidates that were asked, sort (loss, node) from the highest, and take m."""
    rng = np.random.default_rng(18)
    for t in range(300):
        count = int(rng.integers(2, 12))
        per_round = int(rng.integers(1, count))
        choices = int(rng.integers(per_round, count + 1))
        probe = Asked(rng.exponential(size=count))
        drawn = begun(count, per_round, rng.integers(1, 99, count), choices=choices).draw(stream(2, "draw", t), probe)
        (asked, _), ranked = probe.questions[0], []
        for node in asked:
            ranked.append((float(probe.losses[node]), node))
        ranked.sort(reverse=True)
        assert len(asked) == choices and drawn == [node for _, node in ranked[:per_round]]
