"""TiFL: tiers, credits and ChangeProbs (Algorithm 2 of Chai et al. 2020), by hand and by oracle."""

import numpy as np
import pytest

from fedpns_ray import InputError
from fedpns_ray.core.interfaces import Nodes, Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.tifl import TierSelection, by_rank, tiers_of
from tests.strategies.made import Asked, devices, updates

DIFFERENCES = (
    "Tiers are ranked by the mean loss on their nodes' data, highest first, not by accuracy on held-out data.",
    "Probabilities change only if the last drawn tier does no better than before (Algorithm 2); the released code "
    "changes them every time.",
    "When no tier has credits left, all have theirs again; the released code draws for ever.",
    "A drawn tier's nodes are drawn without replacement; the released code's numpy call may take a node twice.",
    "Where the number of nodes is no multiple of the number of tiers, the first tiers have one node more; the released "
    "code fails.",
    "All tiers have the same credits, as the released default has; there they may be drawn from a Dirichlet.",
    "A round from which no node returns costs no credit.",
    "Latencies come from the device model, without fading; the paper measures them in rounds of their own.",
)


def begun(latency, per_round=1, **more):
    """Nodes that train for so many seconds; an upload takes 1 s."""
    selection = TierSelection(**{"tiers": 2, **more})
    model = devices(100 / np.array(latency, dtype=float), [1000.0] * len(latency))
    selection.begin(Nodes(np.full(len(latency), 10), np.zeros(len(latency), dtype=bool), per_round, model))
    return selection


def outcome(losses=()):
    return Outcome(np.zeros(1, dtype=np.float32), probed=dict(enumerate(losses)))


def trained(selection, ids, losses=()):
    selection.learn(updates(np.zeros((len(ids), 1)), ids=ids), outcome(losses))


def test_tiers_by_hand():
    assert tiers_of(np.array([5.0, 1.0, 3.0, 2.0]), 2).tolist() == [1, 0, 1, 0]
    assert tiers_of(np.array([5.0, 1.0, 3.0, 2.0, 4.0]), 2).tolist() == [1, 0, 0, 0, 1]
    assert begun([5, 1, 3, 2]).state_dict()["tier_of"].tolist() == [1, 0, 1, 0]


def test_upload_counts():
    """Training takes 1 and 2 s, uploads 9 and 1 s: node 1 is faster."""
    selection = TierSelection(tiers=2)
    model = devices([100.0, 50.0], [1000 / 9, 1000.0])
    selection.begin(Nodes(np.full(2, 10), np.zeros(2, dtype=bool), 1, model))
    assert selection.state_dict()["tier_of"].tolist() == [1, 0]


def test_change_probs_by_hand():
    """n = 3: 3/6, 2/6, 1/6 from the worst. Without credits for tier 0, n = 2: 2/3 and 1/3."""
    np.testing.assert_allclose(by_rank(np.array([0.5, 2.0, 1.0]), np.array([1, 1, 1])), [1 / 6, 3 / 6, 2 / 6])
    np.testing.assert_allclose(by_rank(np.array([5.0, 2.0, 1.0]), np.array([0, 1, 1])), [0, 2 / 3, 1 / 3])
    np.testing.assert_allclose(by_rank(np.array([1.0, 1.0]), np.array([1, 1])), [2 / 3, 1 / 3])


def test_change_probs_against_the_released_rule():
    """easyFL's `TiFL.py: change_probs` over accuracies, here minus losses."""
    for case in range(200):
        rng = stream(case, "case")
        count = int(rng.integers(1, 7))
        losses, credits = rng.permutation(count) + 0.5, rng.integers(0, 3, count)
        n = len([c for c in credits if c > 0])
        expected, skipped = [0.0] * count, 0
        for index, tier in enumerate(sorted(range(count), key=lambda k: -losses[k])):
            if credits[tier] > 0:
                expected[tier] = (n - (index - skipped)) / (n * (n + 1) / 2)
            else:
                skipped += 1
        np.testing.assert_allclose(by_rank(losses, credits), expected)


def test_all_nodes_are_asked_every_interval():
    selection = begun([1, 2, 3, 4], tier_interval=3)
    asked = []
    for t in range(8):
        probe = Asked([1.0] * 4)
        drawn = selection.draw(stream(t, "draw"), probe)
        asked.append([ids for ids, _ in probe.questions])
        trained(selection, drawn, [1.0] * 4 if probe.questions else ())
    assert asked == [[[0, 1, 2, 3]], [], [], [[0, 1, 2, 3]], [], [], [[0, 1, 2, 3]], []]
    assert selection.state_dict()["round"] == 8
    made = TierSelection()
    assert (made.tiers, made.credits, made.tier_interval) == (5, 40, 10)  # T and I of the released code


def test_means_of_tiers_and_what_is_not_known():
    """Tier 0 is nodes 0 and 1. A tier that does not report keeps its mean; while one is not known, nothing changes."""
    selection = begun([1, 2, 3, 4], tier_interval=1)
    trained(selection, [0], [1.0])
    np.testing.assert_array_equal(selection.state_dict()["before"], [1.0, np.nan])
    trained(selection, [0], [2.0, 4.0, 5.0, 7.0])  # tier 0 does worse, but tier 1 has no mean to compare with
    assert selection.state_dict()["before"].tolist() == [3, 6] and selection.state_dict()["p"].tolist() == [0.5, 0.5]
    trained(selection, [0], [9.0, 9.0, np.nan, 1.0])  # a loss that is not a number
    assert selection.state_dict()["p"].tolist() == [0.5, 0.5]
    trained(selection, [0], [2.0, 4.0, 5.0, 7.0])
    trained(selection, [0], [9.0])  # only tier 0 reports: 9, against 6 as it was
    assert selection.state_dict()["before"].tolist() == [9, 6]
    np.testing.assert_allclose(selection.state_dict()["p"], [2 / 3, 1 / 3])


def test_a_tier_of_probability_0_is_not_drawn():
    selection = begun([1, 2, 3, 4], tier_interval=100)
    selection.load_state_dict({**selection.state_dict(), "p": np.array([0.0, 1.0]), "round": np.array(1)})
    assert {node for t in range(50) for node in selection.draw(stream(t, "draw"), None)} == {2, 3}


def test_credits_are_paid_and_run_out():
    selection = begun([1, 2, 3, 4], credits=2, tier_interval=100)
    assert selection.notes() == {"tier": 0}
    for _ in range(2):  # with one credit left, a tier can still be drawn
        assert {node for t in range(50) for node in selection.draw(stream(t, "draw"), Asked([1.0] * 4))} == {0, 1, 2, 3}
        trained(selection, [0])
    assert selection.state_dict()["credits"].tolist() == [0, 2] and selection.notes() == {"tier": 0}
    assert {node for t in range(50) for node in selection.draw(stream(t, "draw"), Asked([1.0] * 4))} == {2, 3}
    trained(selection, [])  # nobody returned
    for _ in range(2):
        trained(selection, [3])
    assert selection.state_dict()["credits"].tolist() == [0, 0]
    assert {node for t in range(50) for node in selection.draw(stream(t, "draw"), Asked([1.0] * 4))} == {0, 1, 2, 3}
    trained(selection, [1])
    assert selection.state_dict()["credits"].tolist() == [1, 2]


def test_a_round_stays_in_its_tier():
    selection = begun([1, 2, 3, 4, 5, 6], per_round=2)
    for t in range(50):
        drawn = selection.draw(stream(t, "draw"), Asked([1.0] * 6))
        assert len(set(drawn)) == 2 and (set(drawn) <= {0, 1, 2} or set(drawn) <= {3, 4, 5})


def test_edges_and_restored_state():
    with pytest.raises(InputError, match="devices: off is not allowed; tifl needs a device model"):
        TierSelection().begin(Nodes(np.ones(2, dtype=int), np.ones(2, dtype=bool), 1))
    assert begun([1], tiers=5).draw(stream(1, "draw"), Asked([1.0])) == [0]
    assert begun([1], tiers=5).state_dict()["p"].tolist() == [1]
    assert sorted(begun([1, 1, 1, 1], per_round=9).draw(stream(1, "draw"), Asked([0.0] * 4))) in ([0, 1], [2, 3])
    one, two = begun([1, 2, 3, 4], tier_interval=2, credits=3), begun([1, 2, 3, 4], tier_interval=2, credits=3)
    for t in range(4):
        trained(one, one.draw(stream(t, "draw"), Asked([1.0, 2.0, 3.0, 4.0])), [1, 2, 3, 4] if t % 2 == 0 else ())
    two.load_state_dict(one.state_dict())
    assert [one.draw(stream(t, "draw"), Asked([5.0] * 4)) for t in range(9)] == [
        two.draw(stream(t, "draw"), Asked([5.0] * 4)) for t in range(9)
    ]


@pytest.mark.parametrize("later, expected", [
    ([1.0, 1.0, 3.0, 5.0], [1 / 3, 2 / 3]),  # the drawn tier (0) stays at 1: ranked anew, tier 1 (mean 4) first
    ([9.0, 9.0, 3.0, 5.0], [2 / 3, 1 / 3]),  # it does worse, and is now the worst itself
    ([0.5, 0.5, 3.0, 5.0], [0.5, 0.5]),  # it does better: nothing changes
])  # fmt: skip
def test_probabilities_change_if_the_tier_does_no_better(later, expected):
    selection = begun([1, 2, 3, 4], tier_interval=1)
    trained(selection, [0], [1.0, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(selection.state_dict()["p"], [0.5, 0.5])  # nothing to compare with
    drawn = [selection.draw(stream(t, "draw"), Asked(later))[0] for t in range(800)]
    assert np.mean([node < 2 for node in drawn]) == pytest.approx(expected[0], abs=0.05)
    trained(selection, [0], later)
    np.testing.assert_allclose(selection.state_dict()["p"], expected)
