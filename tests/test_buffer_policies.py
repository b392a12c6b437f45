"""Buffers under each policy: what is sent, what is averaged, what a strategy sees, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core.interfaces import Updates
from fedpns_ray.core.models import FlatModel, build_model
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.core.work import Answer, merged
from fedpns_ray.data import build_population
from fedpns_ray.strategies.optimal_aggregation import OptimalAggregation

HERE = "tests.test_buffer_policies"
SMALL = {
    "model": f"{HERE}:Normed", "strategy": "fedavg", "nodes": 4, "fraction": 0.5, "rounds": 2, "samples_per_node": 50,
    "epochs": 1, "sigma": 0.5,
}  # fmt: skip
PARAMETERS, STATISTICS = 2 * 60 + 610, 2 * 60


class Normed(nn.Sequential):
    """Batch normalisation of the features, then a linear layer."""

    def __init__(self):
        super().__init__(nn.BatchNorm1d(60), nn.Linear(60, 10))


class Replacing(nn.Module):
    """A running mean that is replaced rather than changed, and a cache that is nobody's state."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(60, 10)
        self.register_buffer("mean", torch.zeros(60))
        self.register_buffer("cache", torch.zeros(3), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
            self.calls += 1
            self.cache = self.cache + 1
        return self.out(x - self.mean)


@pytest.fixture(autouse=True)
def single_thread():
    with one_thread():
        yield


def worker_of(**more):
    e = Experiment(**SMALL | more)
    return Worker(e, build_population(e)), e


def test_average_sends_the_running_statistics_behind_the_parameters():
    worker, _ = worker_of(buffers="average", batch_size=40)
    start = worker.initial_weights
    assert len(start) == PARAMETERS + STATISTICS and start[PARAMETERS:].tolist() == [0.0] * 60 + [1.0] * 60
    update = worker.train(start, 1, [0, 1])
    assert update.buffers == STATISTICS and update.of_parameters.shape == (2, PARAMETERS)
    x = worker._population.samples.train_x[worker._population.held_by(0)]  # 40 of 50: one step on all of them
    assert len(x) == 40
    moved = update.deltas[0, PARAMETERS:]  # momentum 0.1: one tenth of the way to the batch's statistics
    np.testing.assert_allclose(moved[:60], 0.1 * x.mean(0), atol=1e-5)
    np.testing.assert_allclose(moved[60:], 0.1 * (x.var(0, ddof=1) - 1), atol=1e-4)
    assert np.array_equal(worker.train(start, 1, [1]).deltas[0], update.deltas[1])
    halves = [Answer(worker.train(start, 1, [node])) for node in (1, 0)]
    assert merged(halves, 0.0).updates.buffers == STATISTICS


def test_average_is_the_mean_of_what_nodes_sent():
    result = run(Experiment(**SMALL, buffers="average").but(rounds=1))
    worker, _ = worker_of(buffers="average")
    deltas = worker.train(worker.initial_weights, 1, result.records[0].drawn).deltas
    expected = worker.initial_weights + deltas.mean(axis=0, dtype=np.float64)
    assert np.array_equal(result.weights, expected.astype(np.float32))
    module = result.module()
    np.testing.assert_array_equal(module[0].running_mean.numpy(), result.weights[PARAMETERS : PARAMETERS + 60])
    assert result.records[0].bytes_up == 2 * 4 * (PARAMETERS + STATISTICS)
    assert result.records[0].test_loss == pytest.approx(worker.test(result.weights, [0])[0, 1] / worker.test_size)


def test_local_sends_parameters_and_tests_with_batch_statistics():
    worker, _ = worker_of(buffers="local")
    weights = worker.initial_weights
    assert len(weights) == PARAMETERS and worker.train(weights, 1, [0]).buffers == 0
    s = worker._population.samples
    x, y = torch.from_numpy(s.test_x[:500]), torch.from_numpy(s.test_y[:500])
    module = FlatModel(worker.model.module).module.train()
    with torch.no_grad():
        expected = float(nn.functional.cross_entropy(module(x).double(), y, reduction="sum"))
    assert worker.test(weights, [0])[0, 1] == pytest.approx(expected, rel=1e-9)
    first = worker.train(weights, 1, [0, 1, 2])
    assert np.array_equal(worker.train(weights, 1, [2]).deltas[0], first.deltas[2])


def test_a_replaced_buffer_is_sent_too_and_a_cache_is_not():
    worker, _ = worker_of(model=f"{HERE}:Replacing", buffers="average", batch_size=40)
    start = worker.initial_weights
    assert len(start) == 610 + 60
    x = worker._population.samples.train_x[worker._population.held_by(3)]
    for _ in range(2):  # nothing stays behind
        moved = worker.train(start, 1, [3]).deltas[0, 610:]
        np.testing.assert_allclose(moved, 0.5 * x.mean(0), atol=1e-6)
    assert int(worker.model.module.calls) == 1


def test_optimal_aggregation_judges_by_parameters():
    """Buffers that point apart do not make an update adverse: they have no gradient."""
    deltas = np.array([[1, 0, 50], [1, 0, -90], [1, 0, 40]], dtype=np.float32)
    three = np.full(3, 10)

    def updates(buffers):
        return Updates((0, 1, 2), deltas, np.ones(3), three, three, 0.1, buffers=buffers)

    weights = np.zeros(3, dtype=np.float32)
    outcome = OptimalAggregation(v=0.1).combine(weights, updates(1), lambda w, **_: 0.0)
    assert outcome.labelled == () and outcome.weights.tolist() == [1, 0, 0]
    assert OptimalAggregation(v=0.1).combine(weights, updates(0), lambda w, **_: 0.0).labelled == (1, 2)
    np.testing.assert_allclose(updates(1).norms(), [1, 1, 1])


@pytest.mark.parametrize("strategy", ["fedpns", "fedprox", "fedadp", "cmfl", "fedavg-full"])
def test_strategies_take_averaged_buffers(strategy, tmp_path):
    e = Experiment(**SMALL | {"strategy": strategy}, buffers="average", clip_updates=1.5, centralised=True)
    result = run(e, out=tmp_path)
    assert len(result.weights) == PARAMETERS + STATISTICS and not result.diverged
    assert (result.weights[PARAMETERS + 60 :] > 0).all()  # variances
    assert e.settings()["buffers"] == "average" and "buffers" not in e.but(buffers="refuse").settings()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "^model: .* has batch normalisation.*set buffers to average or local"),
        ({"buffers": "keep"}, "^buffers: "),
        ({"buffers": "average", "batch_size": 39}, "^batch_size: 39 leaves node 0 with a batch of one sample"),
        ({"buffers": "local", "batch_size": 1}, "^batch_size: 1 leaves node 0 with a batch of one sample"),
        ({"buffers": "average", "vectorize": "on"}, "^vectorize: on is not allowed; with buffers average"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings, message):
    with pytest.raises(InputError, match=message) as caught:
        run(Experiment(**SMALL | settings))
    assert "\n" not in str(caught.value)


def test_a_module_without_buffers_is_the_same_under_every_policy():
    plain = FlatModel(build_model("cnn-m", (1, 28, 28), 10, seed=1))
    averaged = FlatModel(build_model("cnn-m", (1, 28, 28), 10, seed=1), average_buffers=True)
    assert torch.equal(plain.state, averaged.state) and len(averaged.state) == len(averaged.weights)


def test_no_server_optimiser_moves_a_buffer():
    """They are averages of what nodes have seen, and stay such; the parameters are moved."""
    averaged = run(Experiment(**SMALL, buffers="average").but(rounds=1))
    served = run(Experiment(**SMALL, buffers="average", server="adam").but(rounds=1))
    worker, _ = worker_of(buffers="average")
    parameters = len(worker.model.weights)
    assert np.array_equal(served.weights[parameters:], averaged.weights[parameters:])
    assert not np.array_equal(served.weights[:parameters], averaged.weights[:parameters])
