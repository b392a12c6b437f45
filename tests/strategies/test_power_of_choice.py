"""Power-of-Choice: pow-d, cpow-d and rpow-d of Cho et al. 2020."""

import numpy as np
import pytest

from fedpns_ray import Experiment, run
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population


def test_a_probe_of_few_samples_is_an_estimate_of_the_whole():
    e = Experiment(nodes=4, samples_per_node=60)
    worker = Worker(e, build_population(e))
    w = worker.initial_weights
    whole = worker.local_losses(w, 1, [2])[0]
    parts = [worker.local_losses(w, t, [2], samples=10)[0] for t in range(200)]
    assert np.mean(parts) == pytest.approx(whole, rel=0.02) and len(set(parts)) > 100
    assert worker.local_losses(w, 7, [1, 2], samples=10)[1] == parts[7]  # by round and node alone
    assert worker.local_losses(w, 1, [2], samples=60)[0] == whole


def test_what_it_costs():
    """pow-d: the model goes to d nodes, and 8 bytes come back from each; rpow-d costs what FedAvg does."""
    settings = {"nodes": 10, "samples_per_node": 30, "epochs": 1, "rounds": 2}
    asked = run(Experiment(strategy="power-of-choice", choices=6, **settings))
    model = 4 * len(asked.weights)
    for record in asked.records:
        assert record["bytes_down"] == 6 * model and record["bytes_up"] == 2 * model + 6 * 8
    free = run(Experiment(strategy="power-of-choice", choices=6, variant="rpow-d", **settings))
    assert free.records[1]["bytes_down"] == free.records[1]["bytes_up"] == 2 * model
