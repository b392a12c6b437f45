"""A model's buffers (running statistics, counters) pass from no node to another, and from no test to a node."""

import numpy as np
import pytest
import torch
from torch import nn

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core import testing
from fedpns_ray.core.models import MLR, FlatModel, build_model
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population


class Linear(nn.Module):
    """One layer over the 60 features of the synthetic data."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(60, 10)

    def forward(self, x):
        return self.out(x)


class InstanceNorm(Linear):
    """Running statistics, and more of them with every batch."""

    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm2d(4, track_running_stats=True, affine=True)

    def forward(self, x):
        return self.out(self.norm(x.view(-1, 4, 3, 5)).flatten(1))


class Counter(Linear):
    """Counts in every way: in place, by replacement, not persistent, in whole numbers, past autograd; in tests, too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("replaced", torch.ones(()), persistent=False)
        self.register_buffer("seen", torch.zeros(60))
        self.register_buffer("past_autograd", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.replaced = self.replaced + 0.1
        self.seen.mul_(0.5).add_(x.detach().mean(0))
        self.past_autograd.data.add_(0.1)
        return self.out(x + self.seen) * self.replaced * self.past_autograd / (1 + self.calls)


class Spectral(nn.Sequential):
    def __init__(self):
        super().__init__(nn.utils.parametrizations.spectral_norm(nn.Linear(60, 10)))


class OldSpectral(nn.Sequential):
    def __init__(self):
        super().__init__(nn.utils.spectral_norm(nn.Linear(60, 10)))


class Cache(Linear):
    """A buffer without a value, one created on first use, one that overlaps itself, and one shared by two modules."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", None)
        self.register_buffer("expanded", torch.ones(1).expand(10))
        self.register_buffer("shared", torch.ones(10))
        self.out.register_buffer("shared", self.shared)

    def forward(self, x):
        if self.cache is None:
            self.cache = x.detach().mean(0)
        if "late" not in self._buffers:
            self.register_buffer("late", x.detach().abs().mean(0))
        self.expanded = self.expanded + 0.1
        self.out.shared.add_(0.1)
        return self.out((x - self.cache) / (1 + self.late)) * self.expanded * self.shared


class ExactCounter(MLR):
    """Gradients in closed form, of which every call makes smaller ones."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.register_buffer("calls", torch.zeros(()))

    def cohort_gradients(self, weights, x, y):
        self.calls += 1
        gradients, losses = super().cohort_gradients(weights, x, y)
        return gradients / self.calls, losses


STATEFUL = (InstanceNorm, Counter, Spectral, OldSpectral, Cache, ExactCounter)
SMALL = {"nodes": 6, "fraction": 0.5, "samples_per_node": 50, "epochs": 2, "rounds": 2}


@pytest.fixture(autouse=True)
def single_thread():
    with one_thread():
        yield


def worker(model, **more):
    e = Experiment(model=f"{__name__}:{model.__name__}", **SMALL | more)
    return Worker(e, build_population(e))


def updates(worker, nodes):
    found = worker.train(worker.initial_weights, 1, nodes)
    return found.deltas.tobytes(), found.losses.tobytes()


@pytest.mark.parametrize("model", STATEFUL)
def test_a_nodes_update_does_not_depend_on_what_came_before(model):
    alone = updates(worker(model), [3])
    used = worker(model)
    used.train(used.initial_weights, 1, [0, 1, 2])
    assert updates(used, [3]) == alone
    used.test(used.initial_weights, range(used.test_chunks))
    used.local_losses(used.initial_weights, 1, [0, 1])
    used.check_loss(used.initial_weights, np.arange(5))
    used.centralised(used.initial_weights, 1)
    assert updates(used, [3]) == alone
    together = used.train(used.initial_weights, 1, [1, 3, 5])
    assert together.deltas[1].tobytes() == alone[0]


@pytest.mark.parametrize("model", STATEFUL)
def test_nor_does_a_test(model, monkeypatch):
    monkeypatch.setattr(testing, "TEST_CHUNK", 3)
    first = worker(model)
    weights, chunks = first.initial_weights, range(first.test_chunks)
    rows, losses = first.test(weights, chunks), first.local_losses(weights, 1, [0, 1, 2])
    checked, central = first.check_loss(weights, np.arange(5)), first.centralised(weights, 1)
    used = worker(model)
    assert len(rows) > 2
    used.train(weights, 1, [0, 1, 2])
    assert np.array_equal(np.concatenate([used.test(weights, [k]) for k in reversed(chunks)])[::-1], rows)
    assert used.local_losses(weights, 1, [2])[0] == losses[2]
    assert used.check_loss(weights, np.arange(5)) == checked
    assert np.array_equal(used.centralised(weights, 1), central)


@pytest.mark.parametrize("model", [InstanceNorm, Counter])
def test_vectorised_nodes_have_buffers_of_their_own(model):
    plain, together = worker(model, vectorize="off"), worker(model, vectorize="on")
    one_by_one = plain.train(plain.initial_weights, 1, range(6))
    at_once = together.train(together.initial_weights, 1, range(6))
    np.testing.assert_allclose(at_once.deltas, one_by_one.deltas, atol=1e-5)
    again = together.train(together.initial_weights, 1, range(6))
    assert np.array_equal(again.deltas, at_once.deltas) and np.array_equal(again.losses, at_once.losses)


def test_what_torch_cannot_vectorise_is_refused_in_one_line():
    with pytest.raises(InputError, match=r"vectorize: on is not allowed for model .*:Spectral \(") as caught:
        worker(Spectral, vectorize="on")
    assert "\n" not in str(caught.value)


def test_a_model_is_built_as_its_factory_made_it():
    """The trial step that looks whether it can be trained leaves no trace."""
    made, built = Counter(), build_model(f"{__name__}:Counter", (60,), 10, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(made.buffers(), built.buffers(), strict=True))
    cache = build_model(f"{__name__}:Cache", (60,), 10, seed=1)
    assert cache.cache is None and "late" not in cache._buffers


def test_buffers_stay_the_tensors_that_they_were():
    """Whoever else holds one of them still does."""
    flat = FlatModel(build_model(f"{__name__}:Cache", (60,), 10, seed=1))
    shared = flat.module.shared
    for _ in range(2):
        flat.load(flat.weights.clone())
        assert flat.module.shared is shared and flat.module.out.shared is shared and torch.equal(shared, torch.ones(10))
        flat.module(torch.randn(5, 60))


def test_a_run_repeats_itself():
    e = Experiment(model=f"{__name__}:Counter", strategy="fedpns", **SMALL)
    assert run(e).summary["weights_sha256"] == run(e).summary["weights_sha256"]


def test_nothing_is_copied_where_there_are_no_buffers():
    for name, shape in (("mlr", (60,)), ("cnn-m", (1, 28, 28)), ("cnn-c", (3, 32, 32))):
        flat = FlatModel(build_model(name, shape, 10, seed=1))
        assert flat._buffers._values == [] and not any(held for _, held in flat._buffers._held)
