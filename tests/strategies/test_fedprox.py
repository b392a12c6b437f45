"""FedProx: equation (2) of Li et al. 2018, and fewer epochs on slow nodes."""

import numpy as np
import pytest

from fedpns_ray import Experiment, run
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population

SMALL = {"nodes": 6, "samples_per_node": 50, "epochs": 4, "rounds": 3, "fraction": 0.5}


def test_without_the_term_it_is_fedavg_to_the_bit():
    prox = run(Experiment(strategy="fedprox", mu=0, **SMALL))
    assert prox.summary["weights_sha256"] == run(Experiment(strategy="fedavg", **SMALL)).summary["weights_sha256"]


@pytest.mark.parametrize("vectorize", ["auto", "off"])
def test_two_steps_written_out(vectorize):
    """One batch an epoch, two epochs: w2 = w1 - eta (grad F(w1) + mu (w1 - w0))."""
    settings = {"nodes": 5, "samples_per_node": 40, "epochs": 2, "batch_size": 50, "vectorize": vectorize}
    plain = Experiment(strategy="fedavg", lr=0.1, **settings)
    prox = Experiment(strategy="fedprox", lr=0.1, mu=3.0, **settings)
    with one_thread():
        population = build_population(plain)
        w0 = Worker(plain, population).initial_weights
        first = Worker(plain.but(epochs=1), population).train(w0, 1, [0]).deltas[0]
        two = Worker(plain, population).train(w0, 1, [0]).deltas[0]
        pulled = Worker(prox, population).train(w0, 1, [0]).deltas[0]
    np.testing.assert_allclose(pulled, two - 0.1 * 3.0 * first, atol=1e-6)


def test_slow_nodes_do_what_they_would_do_with_fewer_epochs():
    e = Experiment(strategy="fedprox", mu=0, stragglers=0.9, **SMALL)
    population = build_population(e)
    with one_thread():
        worker = Worker(e, population)
        found = worker.train(worker.initial_weights, 1, range(6))
        epochs = found.steps // 2  # 40 samples (of 50 the fifth is for testing) are 2 batches of 20
        assert found.steps.tolist() == (2 * epochs).tolist() and set(epochs) <= {1, 2, 3, 4} and len(set(epochs)) > 1
        for node, count in enumerate(epochs):
            alone = Worker(Experiment(strategy="fedavg", **SMALL | {"epochs": int(count)}), population)
            assert np.array_equal(alone.train(worker.initial_weights, 1, [node]).deltas[0], found.deltas[node])
        other = worker.train(worker.initial_weights, 2, range(6)).steps
    assert other.tolist() != found.steps.tolist()  # others each round
