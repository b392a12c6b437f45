"""CMFL: the relevance of Wang et al. 2019, by hand."""

import numpy as np
import pytest

from fedpns_ray import Experiment, run
from fedpns_ray.core.interfaces import Outcome
from fedpns_ray.strategies.cmfl import RelevantSelection, relevance
from tests.strategies.made import nodes, updates

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
    """Against (+, +, -, 0): 2 of 4, 1 of 4, 1 of 4, 2 of 4; a 0 agrees with a 0 only."""
    last = np.array([3, 0.1, -2, 0], dtype=np.float32)
    np.testing.assert_allclose(relevance(FOUR, last), [0.5, 0.25, 0.25, 0.5])


def test_the_irrelevant_are_withheld():
    selection = begun()
    assert selection.sift(None, FOUR).node_ids == (0, 1, 2, 3)  # no global update yet
    learnt(selection, [3, 0.1, -2, 0])
    assert selection.sift(None, FOUR).node_ids == (0, 3)  # exactly half is enough
    assert learnt(begun(relevance=0.51), [3, 0.1, -2, 0]).sift(None, FOUR).node_ids == ()
    assert learnt(begun(relevance=0), [3, 0.1, -2, 0]).sift(None, FOUR).node_ids == (0, 1, 2, 3)


def test_the_threshold_may_fall_with_the_round():
    """v / sqrt(t): 0.8 in round 1 is 0.8 / sqrt 2 = 0.566 in round 2 and 0.4 in round 4."""
    selection = learnt(begun(relevance=0.8, relevance_decay="sqrt"), [1, 1, 1, -1])  # relevances 0.75, 0.75, 0, 0.5
    assert selection.sift(None, FOUR).node_ids == (0, 1)
    for _ in range(2):
        learnt(selection, [1, 1, 1, -1])
    assert selection.sift(None, FOUR).node_ids == (0, 1, 3)


def test_a_round_in_which_nobody_sent_changes_nothing():
    selection = learnt(begun(), [1, 1, 1, 1])
    learnt(selection, [0, 0, 0, 0], aggregated=())
    assert selection.state_dict()["last"].tolist() == [1, 1, 1, 1] and selection.state_dict()["round"] == 2


def test_in_a_run_the_last_global_update_is_the_models_difference():
    e = Experiment(
        strategy="cmfl",
        relevance=0.55,
        relevance_decay="none",
        nodes=8,
        fraction=0.5,
        samples_per_node=30,
        epochs=1,
        rounds=6,
    )
    result = run(e)
    first = result.records[0]
    assert first["aggregated"] == first["drawn"] and len(first["drawn"]) == 4
    model = 4 * len(result.weights)
    for record in result.records:
        assert set(record["aggregated"]) <= set(record["drawn"])
        assert record["bytes_up"] == model * len(record["aggregated"]) and record["bytes_down"] == 2 * model * 4
    assert any(len(record["aggregated"]) < 4 for record in result.records)
    assert (
        run(e.but(relevance=0.0)).summary["weights_sha256"] == run(e.but(strategy="fedavg")).summary["weights_sha256"]
    )


def test_one_node():
    selection = RelevantSelection(relevance=0.5)
    selection.begin(nodes(1, 1))
    learnt(selection, [1, 1, 1, 1])
    assert selection.sift(None, FOUR.subset([2])).node_ids == () and selection.sift(
        None, FOUR.subset([0])
    ).node_ids == (0,)
    with pytest.raises(ValueError, match="less than or equal"):
        RelevantSelection(relevance=1.1)
