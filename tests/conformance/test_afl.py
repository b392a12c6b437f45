"""Active Federated Learning: Algorithm 1 of Goetz et al. 2019, by hand and by oracle."""

import math

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Nodes, Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.afl import ActiveSelection, probabilities
from tests.strategies.made import Asked, updates

DIFFERENCES = (
    "alpha1 is the fraction that is left out, as in the paper, in FedCor's code and in Plato's; another public code "
    "leaves out the rest.",
    "Nodes are asked for their first valuation, as in FedCor's code; in Plato's they start at minus infinity, and with "
    "probabilities raised by 0.01 so that they can be drawn.",
    "Valuations left out of a draw are kept for the next; Plato's code sets them to minus infinity for good.",
    "A loss that is not finite counts as 0.",
)


def begun(sizes, per_round, **more):
    selection = ActiveSelection(**more)
    selection.begin(Nodes(np.array(sizes), np.zeros(len(sizes), dtype=bool), per_round))
    return selection


def outcome(probed):
    return Outcome(np.zeros(1, dtype=np.float32), probed=probed)


def valued(values, per_round, **more):
    """A selection whose nodes, of 1 sample each, have these valuations."""
    selection = begun([1] * len(values), per_round, **more)
    selection.learn(updates(np.zeros((0, 1))), outcome(dict(enumerate(values))))
    return selection


def test_a_valuation_is_the_sum_of_losses_over_the_root_of_n():
    """v_k = (sum of losses) / sqrt(n_k): 4 samples of mean loss 3 give 12 / 2 = 6; 9 of mean loss 2 give 18 / 3 = 6."""
    selection = begun([4, 9], 1)
    selection.learn(updates(np.zeros((0, 1))), outcome({0: 3.0, 1: 2.0}))
    assert selection.state_dict()["values"].tolist() == [6.0, 6.0]


def test_probabilities_by_hand():
    """alpha1 = 0.5 leaves out the two lowest of four; alpha2 = ln 2 makes e^(alpha2 v) = 2^v: 2 and 8 of 10."""
    found = probabilities(np.array([3.0, 0.0, 1.0, -1.0]), 0.5, math.log(2))
    np.testing.assert_allclose(found, [0.8, 0, 0.2, 0])
    np.testing.assert_allclose(probabilities(np.array([5.0, 1.0]), 0.0, 0.0), [0.5, 0.5])  # alpha2 = 0: uniform
    np.testing.assert_allclose(
        probabilities(np.array([1e6, 1e6 - 1]), 0.0, 1.0), [1 / (1 + 1 / math.e), 1 / (1 + math.e)]
    )
    assert (ActiveSelection().alpha1, ActiveSelection().alpha2, ActiveSelection().alpha3) == (0.75, 0.01, 0.1)


def test_all_are_asked_at_first_and_then_only_the_drawn():
    selection = begun([1, 1, 1, 1], 2, alpha1=0.5, alpha3=0.5)
    probe = Asked([1.0, 2.0, 3.0, 4.0])
    drawn = selection.draw(stream(1, "draw"), probe)
    assert probe.questions[0] == ([0, 1, 2, 3], None) and len(probe.questions) == 1  # nobody is asked twice
    selection.learn(
        updates(np.zeros((2, 1)), ids=sorted(drawn), losses=[9, 9]), outcome({k: k + 1.0 for k in range(4)})
    )
    assert selection.state_dict()["values"].tolist() == [1, 2, 3, 4]  # not the losses of their steps
    probe = Asked([5.0] * 4)
    drawn = selection.draw(stream(2, "draw"), probe)
    assert probe.questions == [(drawn, None)]
    selection.learn(updates(np.zeros((2, 1)), ids=sorted(drawn)), outcome(dict.fromkeys(drawn, 5.0)))
    expected = [5.0 if node in drawn else node + 1.0 for node in range(4)]
    assert selection.state_dict()["values"].tolist() == expected


def test_valuations_from_training():
    selection = valued([1.0, 2.0, 3.0], 1, valuation="training", alpha1=0)
    probe = Asked([7.0] * 3)
    selection.draw(stream(1, "draw"), probe)
    assert probe.questions == []
    selection.learn(updates(np.zeros((1, 1)), ids=(1,), losses=[9.0]), outcome({}))
    assert selection.state_dict()["values"].tolist() == [1, 9, 3]


def test_parts_of_the_draw():
    """alpha3 = 0.5 of 4: two by valuation, which with alpha1 = 0.75 of 8 are the two highest; two of the other six."""
    selection = valued([0, 1, 2, 3, 4, 5, 6, 7], 4, alpha3=0.5)
    seen = set()
    for t in range(200):
        drawn = selection.draw(stream(t, "draw"), Asked([1.0] * 8))
        assert set(drawn[:2]) == {6, 7} and len(set(drawn)) == 4
        seen |= set(drawn[2:])
    assert seen == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("alpha1, alpha2, alpha3", [(0.75, 0.01, 0.1), (0.5, 0.5, 0.34), (0.0, 1.0, 0.0)])
def test_against_the_released_rule(alpha1, alpha2, alpha3):
    """FedCor's `federated_main.py`, in plain loops: the same probabilities and the same numbers of each kind."""
    for case in range(200):
        rng = stream(case, "case")
        values = rng.random(int(rng.integers(2, 30))) * 10
        low = sorted(range(len(values)), key=lambda k: (values[k], k))[: int(alpha1 * len(values))]
        total = sum(math.exp(alpha2 * v) for k, v in enumerate(values) if k not in low)
        expected = [0.0 if k in low else math.exp(alpha2 * v) / total for k, v in enumerate(values)]
        np.testing.assert_allclose(probabilities(values, alpha1, alpha2), expected, rtol=1e-12)
        per_round = int(rng.integers(1, len(values) + 1))
        selection = valued(values, per_round, alpha1=alpha1, alpha2=alpha2, alpha3=alpha3)
        drawn = selection.draw(stream(case, "draw"), Asked([1.0] * len(values)))
        assert len(set(drawn)) == per_round
        active = int((1 - alpha3) * per_round)
        assert len([node for node in drawn[:active] if node in low]) == max(0, active - (len(values) - len(low)))


def test_frequencies():
    """2^v with v = 0, 1, 2: a draw of one is node 2 in 4 of 7."""
    selection = valued([0.0, 1.0, 2.0], 1, alpha1=0, alpha2=math.log(2), alpha3=0)
    drawn = [selection.draw(stream(t, "draw"), Asked([1.0] * 3))[0] for t in range(4000)]
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [1 / 7, 2 / 7, 4 / 7], atol=0.03)


def test_alpha_3_is_the_uniform_part():
    """With valuations of 0, 0 and 9 and alpha2 = 9, the softmax is node 2; alpha3 = 1 leaves nothing to it."""
    selection = valued([0.0, 0.0, 9.0], 1, alpha1=0, alpha2=9.0, alpha3=1.0)
    drawn = [selection.draw(stream(t, "draw"), Asked([1.0] * 3))[0] for t in range(900)]
    np.testing.assert_allclose(np.bincount(drawn) / 900, 1 / 3, atol=0.06)
    """1 - 0.9 is a little less than 0.1: still one node of ten is drawn by valuation. 0.29 of 100 nodes are 29."""
    selection = valued([0.0] * 11 + [9.0], 10, alpha1=0, alpha2=9.0, alpha3=0.9)
    assert {selection.draw(stream(t, "draw"), Asked([1.0] * 12))[0] for t in range(50)} == {11}
    assert (probabilities(np.arange(100.0), 0.29, 0.0) == 0).sum() == 29


def test_edges_and_restored_state():
    assert begun([5], 1).draw(stream(1, "draw"), Asked([1.0])) == [0]
    assert sorted(begun([5, 5], 4).draw(stream(1, "draw"), Asked([0.0, 0.0]))) == [0, 1]
    broken = valued([np.nan, np.inf, 1.0, 2.0], 2, alpha1=0.5, alpha3=0)
    assert sorted(broken.draw(stream(1, "draw"), Asked([1.0] * 4))) == [2, 3]
    assert valued([np.nan, np.inf, -np.inf], 1).state_dict()["values"].tolist() == [0, 0, 0]
    one, two = valued([3.0, 1.0, 2.0, 5.0], 2), begun([1] * 4, 2)
    two.load_state_dict(one.state_dict())
    assert [one.draw(stream(t, "draw"), Asked([1.0] * 4)) for t in range(20)] == [
        two.draw(stream(t, "draw"), Asked([1.0] * 4)) for t in range(20)
    ]
