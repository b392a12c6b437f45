"""Power-of-Choice: pow-d, cpow-d and rpow-d of Cho et al. 2020."""

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core.interfaces import Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population
from fedpns_ray.strategies.power_of_choice import PowerOfChoiceSelection
from tests.strategies.made import Asked, nodes, updates


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
    """Sizes 1 : 3, d = 1: node 1 is asked three times out of four."""
    selection = begun(2, 1, sizes=[100, 300], choices=1)
    drawn = [selection.draw(stream(1, "draw", t), Asked([0, 0]))[0] for t in range(4000)]
    assert np.mean(drawn) == pytest.approx(0.75, abs=0.02)


def test_equal_losses_are_a_random_draw_and_one_node_is_that_node():
    selection = begun(choices=6)
    drawn = np.concatenate([selection.draw(stream(1, "draw", t), Asked(np.ones(6))) for t in range(3000)])
    np.testing.assert_allclose(np.bincount(drawn) / 3000, 1 / 3, atol=0.03)
    assert begun(1, 1, choices=1).draw(stream(1, "draw", 1), Asked([7])) == [0]


def test_cpow_d_asks_for_a_mini_batch():
    probe = Asked(np.arange(6))
    begun(choices=6, variant="cpow-d", probe_samples=3).draw(stream(1, "draw", 1), probe)
    assert probe.questions[0][1] == 3


def test_a_probe_of_few_samples_is_an_estimate_of_the_whole():
    e = Experiment(nodes=4, samples_per_node=60)
    worker = Worker(e, build_population(e))
    w = worker.initial_weights
    whole = worker.local_losses(w, 1, [2])[0]
    parts = [worker.local_losses(w, t, [2], samples=10)[0] for t in range(200)]
    assert np.mean(parts) == pytest.approx(whole, rel=0.02) and len(set(parts)) > 100
    assert worker.local_losses(w, 7, [1, 2], samples=10)[1] == parts[7]  # by round and node alone
    assert worker.local_losses(w, 1, [2], samples=60)[0] == whole


def test_rpow_d_asks_nobody_and_tries_the_unknown_first():
    selection = begun(choices=6, variant="rpow-d")
    selection.learn(updates([[0]] * 4, ids=(0, 1, 2, 3), losses=[1, 5, 2, 4]), Outcome(np.zeros(1, dtype=np.float32)))
    assert set(selection.draw(stream(1, "draw", 2), None)) == {4, 5}  # never heard of: infinite
    selection.learn(updates([[0]] * 2, ids=(4, 5), losses=[3, 0]), Outcome(np.zeros(1, dtype=np.float32)))
    assert set(selection.draw(stream(1, "draw", 3), None)) == {1, 3}


def test_what_it_costs():
    """pow-d: the model goes to d nodes, and 8 bytes come back from each; rpow-d costs what FedAvg does."""
    settings = {"nodes": 10, "samples_per_node": 30, "epochs": 1, "rounds": 2}
    asked = run(Experiment(strategy="power-of-choice", choices=6, **settings))
    model = 4 * len(asked.weights)
    for record in asked.records:
        assert record["bytes_down"] == 6 * model and record["bytes_up"] == 2 * model + 6 * 8
    free = run(Experiment(strategy="power-of-choice", choices=6, variant="rpow-d", **settings))
    assert free.records[1]["bytes_down"] == free.records[1]["bytes_up"] == 2 * model


def test_too_few_choices_are_refused():
    with pytest.raises(InputError, match="choices: 1 is not allowed; it must be between 2"):
        begun(choices=1)
