"""Local training: right, and the same to the last bit whoever trains beside whom."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedpns_ray import Experiment
from fedpns_ray.core.models import build_model
from fedpns_ray.core.streams import stream, torch_seed
from fedpns_ray.core.testing import TEST_CHUNK
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population


@pytest.fixture(autouse=True)
def single_thread():
    with one_thread():
        yield


SMALL = {"nodes": 12, "fraction": 0.5, "samples_per_node": 50, "rounds": 2}
SETTINGS = {
    "mlr, synthetic": {"epochs": 2, **SMALL},
    "mlr, mnist": {"dataset": "mnist", "model": "mlr", **SMALL},
    "mlr, unequal nodes": {"dataset": "mnist", "model": "mlr", "size_spread": 0.6, **SMALL},
    "cnn-m": {"dataset": "mnist", **SMALL},
    "cnn-c": {"dataset": "cifar10", **SMALL, "epochs": 1},
}


@pytest.fixture(params=SETTINGS)
def worker(request, mnist, cifar10):
    e = Experiment(**SETTINGS[request.param])
    return Worker(e, build_population(e))


def test_a_node_trains_the_same_alone_and_beside_others(worker):
    """Idea 2 of the design: a node's update is a function of (weights, round, node)."""
    weights = worker.initial_weights
    together = worker.train(weights, 3, range(10))
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 5, 9):
        ids = rng.choice(10, size, replace=False)
        some = worker.train(weights, 3, ids)
        assert some.node_ids == tuple(sorted(ids))
        at = list(some.node_ids)
        assert np.array_equal(some.deltas, together.deltas[at]) and np.array_equal(some.losses, together.losses[at])
    assert not np.array_equal(worker.train(weights, 4, range(10)).deltas, together.deltas)  # another round


def test_training_leaves_the_callers_generator_and_threads_alone(mnist):
    e = Experiment(**SETTINGS["cnn-m"])
    worker = Worker(e, build_population(e))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    worker.train(worker.initial_weights, 1, [0, 1])
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", SETTINGS)
def test_against_plain_torch(name, mnist, cifar10):
    """The same training written out with torch.optim.SGD and no trick."""
    e = Experiment(**SETTINGS[name], lr=0.05)
    population = build_population(e)
    worker = Worker(e, population)
    node, t = 7, 2
    update = worker.train(worker.initial_weights, t, [node])

    s, own = population.samples, population.held_by(node)
    x, y = torch.from_numpy(s.train_x[own]), torch.from_numpy(s.train_y[own])
    if x.dtype == torch.uint8:
        x = (x / 255 - s.mean) / s.deviation
    module = build_model(e.model, s.shape, s.classes, e.seed).train()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05 * 0.995)
    shuffle = stream(e.seed, "shuffle", t, node)
    torch.manual_seed(torch_seed(e.seed, "dropout", t, node))
    losses = []
    for _ in range(e.epochs):
        for batch in torch.from_numpy(shuffle.permutation(len(y))).split(20):
            loss = F.cross_entropy(module(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
    trained = torch.cat([p.detach().flatten() for p in module.parameters()]).numpy()
    np.testing.assert_allclose(update.deltas[0], trained - worker.initial_weights, atol=2e-6)
    assert update.losses[0] == pytest.approx(np.mean(losses), rel=1e-5)
    assert update.steps.tolist() == [len(losses)] and update.sizes.tolist() == [len(y)]
    assert update.lr == pytest.approx(0.05 * 0.995)


def test_vectorised_paths_agree_but_for_rounding(mnist):
    for model in ("mlr", "cnn-m"):
        base = Experiment(**{**SETTINGS["cnn-m"], "model": model})
        population = build_population(base)
        found = {v: Worker(base.but(vectorize=v), population) for v in ("auto", "off", "on")}
        if model == "mlr":
            deltas = {v: w.train(w.initial_weights, 1, range(4)).deltas for v, w in found.items()}
            np.testing.assert_allclose(deltas["auto"], deltas["off"], atol=1e-6)
            np.testing.assert_allclose(deltas["on"], deltas["off"], atol=1e-6)
        else:  # dropout draws other masks when nodes are trained together
            deltas = {v: w.train(w.initial_weights, 1, range(4)).deltas for v, w in found.items()}
            assert np.array_equal(deltas["auto"], deltas["off"]) and not np.array_equal(deltas["on"], deltas["off"])


def test_testing_is_the_whole_test_set_in_fixed_chunks(mnist):
    e = Experiment(**SETTINGS["mlr, mnist"])
    population = build_population(e)
    worker = Worker(e, population)
    weights = worker.initial_weights
    assert worker.test_chunks == 10000 // TEST_CHUNK
    rows = worker.test(weights, range(worker.test_chunks))
    again = np.concatenate([worker.test(weights, [k]) for k in range(worker.test_chunks)])
    assert np.array_equal(rows, again)
    s = population.samples
    x = torch.from_numpy((s.test_x.reshape(10000, -1) / 255 - s.mean) / s.deviation).float()
    w, b = weights[:-10].reshape(10, 784), weights[-10:]
    outputs = x @ torch.from_numpy(w).T + torch.from_numpy(b)
    y = torch.from_numpy(s.test_y)
    assert rows[:, 0].sum() == (outputs.argmax(1) == y).sum()
    assert rows[:, 1].sum() / 10000 == pytest.approx(float(F.cross_entropy(outputs, y)), rel=1e-5)
    some = np.array([5, 17, 9000])
    assert worker.check_loss(weights, some) == pytest.approx(float(F.cross_entropy(outputs[some], y[some])), rel=1e-5)


def test_local_losses_are_of_the_nodes_own_data():
    e = Experiment(**SETTINGS["mlr, synthetic"])
    population = build_population(e)
    worker = Worker(e, population)
    weights = worker.initial_weights
    own = population.held_by(4)
    outputs = population.samples.train_x[own] @ weights[:-10].reshape(10, 60).T + weights[-10:]
    expected = F.cross_entropy(torch.from_numpy(outputs), torch.from_numpy(population.samples.train_y[own]))
    assert worker.local_losses(weights, 1, [4, 5])[0] == pytest.approx(float(expected), rel=1e-5)
