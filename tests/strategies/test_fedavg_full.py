"""Vanilla FedAvg, from the paper's footnote to (5)."""

import numpy as np
import pytest

from fedpns_ray import Experiment, run


def test_with_everybody_drawn_it_is_the_mean_by_data_size():
    e = Experiment(strategy="fedavg-full", nodes=5, fraction=1.0, samples_per_node=40, epochs=1, rounds=1)
    full, mean = run(e), run(e.but(strategy="fedavg"))
    np.testing.assert_allclose(full.weights, mean.weights, rtol=1e-5, atol=1e-7)


def test_equal_nodes_move_by_c_times_the_mean():
    e = Experiment(strategy="fedavg", nodes=10, samples_per_node=40, epochs=1, rounds=1)
    start = e.but(strategy="fedavg-full")
    from fedpns_ray.core.training import Worker
    from fedpns_ray.data import build_population

    w = Worker(e, build_population(e)).initial_weights
    np.testing.assert_allclose(run(start).weights - w, e.fraction * (run(e).weights - w), rtol=1e-3, atol=1e-6)
    assert run(start).rounds["drawn"].tolist() == run(e).rounds["drawn"].tolist()


@pytest.mark.parametrize("part", ["random", "pns", "oort"])
def test_any_selection(part):
    run(Experiment(strategy="fedavg-full", selection=part, nodes=10, samples_per_node=20, epochs=1, rounds=2))
