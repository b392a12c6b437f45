"""The GPU path without a GPU: on a device that is only pretended, with real numbers, and that meets no CPU tensor."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.gpu.budgets import BUDGETS, FUSED_RUNS, MOST_FUSED, counts, fused_counts
from benchmarks.gpu.pretended import MixedDevices, pretended_device
from benchmarks.gpu.scenes import SCENES
from fedpns_ray import Experiment, InputError
from fedpns_ray.core import cohorts, device_data, transfers
from fedpns_ray.core.gpu_memory import CONTEXT, GpuNeeds
from fedpns_ray.core.models import MLR, dropout
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.core.work import Work
from fedpns_ray.data import build_population
from fedpns_ray.data.interfaces import Samples
from fedpns_ray.data.population import from_lists
from fedpns_ray.runtime.gpu_memory import refuse_beyond

ROOT = Path(__file__).parent.parent
TOLERANCE = 1e-3
"""Of the norm of an update: how far rounding may carry it in two steps, from the loop on a CPU to a cohort on a GPU."""
SMALL = {"max_steps": 2, "metrics": "macro-f1"}


@pytest.fixture(autouse=True)
def single_thread():
    with one_thread():
        yield


def everything(worker, nodes):
    w, chunks = worker.initial_weights, tuple(range(worker.test_chunks))
    return worker.answer(Work(w, 3, train=nodes, test=chunks, own_tests=nodes[:2], probe=nodes, probe_samples=7))


def assert_alike(found, expected, tolerance=TOLERANCE):
    apart = np.linalg.norm(found.updates.deltas - expected.updates.deltas, axis=1)
    assert (apart <= tolerance * np.linalg.norm(expected.updates.deltas, axis=1)).all()
    np.testing.assert_allclose(found.updates.losses, expected.updates.losses, rtol=1e-4)
    np.testing.assert_allclose(found.tested, expected.tested, rtol=1e-6)
    assert np.array_equal(found.confusion, expected.confusion) and found.own_accuracies == expected.own_accuracies
    assert found.losses == pytest.approx(expected.losses, rel=1e-6)


@pytest.mark.parametrize("name", SCENES)
def test_every_model_trains_in_cohorts_and_agrees_with_the_loop_on_a_cpu(name):
    """Dropout included: a node drops the same units alone on a CPU and in a cohort on a GPU."""
    scene = SCENES[name]
    e, population, nodes = scene.experiment(**SMALL), scene.population(), tuple(range(scene.nodes))
    expected = everything(Worker(e.but(vectorize="off"), population), nodes)
    with pretended_device() as device:
        worker = Worker(e, population, device)
        assert worker.training == f"in cohorts of {scene.nodes}"
        assert_alike(everything(worker, nodes), expected)


@pytest.mark.parametrize("name", ["mlr", "cnn-m"])
def test_whoever_trains_beside_whom_no_bit_changes(name):
    """Cohorts are filled up, so that a worker with one node computes with the same shapes as one with all."""
    scene = SCENES[name]
    with pretended_device() as device:
        worker = Worker(scene.experiment(max_steps=3), scene.population(), device)
        together = worker.train(worker.initial_weights, 2, range(10))
        for ids in ([3], [9, 1], [2, 3, 5, 7]):
            some = worker.train(worker.initial_weights, 2, ids)
            at = list(some.node_ids)
            assert np.array_equal(some.deltas, together.deltas[at]) and np.array_equal(some.losses, together.losses[at])


def test_unequal_nodes_and_models_that_cannot_be_vectorised_train_one_by_one():
    e = Experiment(nodes=12, model="tests.test_gpu_path:Noisy", size_spread=0.0, strategy="fedavg")
    uneven = Experiment(nodes=12, model="tests.test_gpu_path:Dropping", size_spread=0.6, strategy="fedavg")
    recurrent = e.but(model="tests.test_gpu_path:Recurrent")
    with pretended_device() as device:
        assert Worker(e, build_population(e), device).training == "one by one"
        assert Worker(recurrent, build_population(e), device).training == "one by one"
        assert Worker(uneven, build_population(uneven), device).training == "one by one"
    with pytest.raises(InputError, match=r"vectorize: on is not allowed for model .*:Noisy .*random"):
        Worker(e.but(vectorize="on"), build_population(e))


def test_a_cpu_trains_as_before_unless_told():
    scene = SCENES["cnn-m"]
    found = {v: Worker(scene.experiment(vectorize=v), scene.population()).training for v in ("auto", "on", "off")}
    assert found == {"auto": "one by one", "on": "in cohorts of 10", "off": "one by one"}
    assert Worker(SCENES["mlr"].experiment(), SCENES["mlr"].population()).training == "in cohorts, exactly"
    many = Experiment(nodes=100, fraction=1.0, vectorize="on", model="tests.test_gpu_path:Dropping", strategy="fedavg")
    assert Worker(many, build_population(many)).training == f"in cohorts of {cohorts.MOST_ROWS}"


class Wandering(MLR):
    """Rows of a cohort whose bits depend on their place, as no library promises that they do not."""

    def cohort_gradients(self, weights, x, y):
        gradients, losses = super().cohort_gradients(weights, x, y)
        return gradients + 1e-7 * torch.arange(len(weights), device=x.device).unsqueeze(1), losses


def test_gradients_in_closed_form_are_tried_too():
    """What is exact on a CPU is so by how a CPU adds up; a GPU is asked."""
    e = SCENES["mlr"].experiment(model="tests.test_gpu_path:Wandering")
    with pretended_device() as device:
        assert Worker(e, SCENES["mlr"].population(), device).training == "one by one"


class Dropping(nn.Sequential):
    """Every kind of dropout, on one layer after another."""

    def __init__(self):
        super().__init__(
            nn.Linear(60, 24), nn.Dropout(0.3), nn.Unflatten(1, (6, 2, 2)), nn.Dropout2d(0.4), nn.Flatten(2),
            nn.Dropout1d(0.2), nn.Unflatten(2, (2, 2, 1)), nn.Dropout3d(0.1), nn.Flatten(), nn.Dropout(0.0),
            nn.Linear(24, 10), nn.Dropout(0.5, inplace=True),
        )  # fmt: skip


class Noisy(nn.Linear):
    """Draws something else than dropout."""

    def __init__(self):
        super().__init__(60, 10)

    def forward(self, x):
        return super().forward(x + 0.1 * torch.randn_like(x))


class Recurrent(nn.Module):
    """Has a layer that torch cannot batch over nodes."""

    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 10)

    def forward(self, x):
        return self.out(self.layer(x.view(-1, 10, 6))[0][:, -1])


def test_every_kind_of_dropout_draws_what_a_node_alone_would_draw(monkeypatch):
    """Also where the last batch is smaller, and where masks come in several blocks."""
    e = Experiment(nodes=6, fraction=0.5, samples_per_node=50, epochs=2, model="tests.test_gpu_path:Dropping")
    population = build_population(e)
    workers = [Worker(e.but(vectorize=v), population) for v in ("off", "on")]
    alone, together = (w.train(w.initial_weights, 2, [1, 4, 5]) for w in workers)
    np.testing.assert_allclose(together.deltas, alone.deltas, atol=1e-6)
    monkeypatch.setattr(dropout, "MOST_DRAWN", 1)
    again = workers[1].train(workers[1].initial_weights, 2, [1, 4, 5])
    assert np.array_equal(again.deltas, together.deltas)


def test_bounds_on_memory_change_no_bit(monkeypatch):
    """Data that may not stay on the device, positions and results that may not go together."""
    scene = SCENES["cnn-m"]
    e, population, nodes = scene.experiment(max_steps=2, metrics="macro-f1"), scene.population(), tuple(range(10))
    with pretended_device() as device:
        expected = everything(Worker(e, population, device), nodes)
        monkeypatch.setattr(device_data, "MOST_RESIDENT", 1)
        monkeypatch.setattr(transfers, "MOST_WAITING", 1)
        monkeypatch.setattr("fedpns_ray.core.training.MOST_INDEXED", 1)
        found = everything(Worker(e, population, device), nodes)
    assert np.array_equal(found.updates.deltas, expected.updates.deltas)
    assert_alike(found, expected, tolerance=0)


@pytest.mark.parametrize("strategy", ["scaffold", "fedprox"])
def test_states_and_shifts_are_on_the_device(strategy):
    """With noisy labels, which do not stay on the device."""
    small = {"nodes": 6, "fraction": 0.5, "samples_per_node": 50, "epochs": 1}
    e = Experiment(**small, strategy=strategy, noisy_nodes=0.5, model="tests.test_gpu_path:Dropping")
    population, nodes = build_population(e), (0, 2, 5)
    expected = Worker(e, population)
    w = expected.initial_weights
    keeps = e.build_strategy().objective.keeps_states
    states, shared = {2: np.full_like(w, 0.01)} if keeps else {}, np.full_like(w, 0.02)
    with pretended_device() as device:
        found = Worker(e, population, device).train(w, 1, nodes, states, shared)
    expected = expected.train(w, 1, nodes, states, shared)
    np.testing.assert_allclose(found.deltas, expected.deltas, atol=1e-6)
    assert (found.states is None) == (expected.states is None) == (not keeps)


# --- the proof can fail -----------------------------------------------------------------------------------------------


def left_behind(self, array):
    return torch.tensor(array)


@pytest.mark.parametrize("name", ["mlr", "cnn-m"])
def test_a_tensor_that_was_left_on_the_cpu_is_caught(name, monkeypatch):
    scene = SCENES[name]
    with pretended_device() as device:
        worker = Worker(scene.experiment(max_steps=1), scene.population(), device)
        monkeypatch.setattr(device_data.DeviceData, "moved", left_behind)
        with pytest.raises(MixedDevices, match="on cpu and others on"):
            worker.train(worker.initial_weights, 1, [0, 1])


class Forgetful(nn.Linear):
    """Makes a tensor on the CPU, wherever it is."""

    def __init__(self):
        super().__init__(60, 10)

    def forward(self, x):
        return super().forward(x) + torch.ones(10)


def test_so_is_one_that_a_model_makes():
    e = Experiment(nodes=6, strategy="fedavg", model="tests.test_gpu_path:Forgetful")
    population = build_population(e)
    Worker(e, population)
    with pretended_device() as device, pytest.raises(MixedDevices):
        worker = Worker(e, population, device)
        worker.train(worker.initial_weights, 1, [0])


# --- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENES)
def test_a_round_stays_within_its_budget(name):
    """Launches, copies and waits: `python -m benchmarks.gpu.budgets` prints what is needed now."""
    with pretended_device() as device:
        _, found = counts(SCENES[name], device)
    assert all(now <= most for now, most in zip(found, BUDGETS[name], strict=True)), (found, BUDGETS[name])
    assert found.waits == 1


def test_nothing_waits_between_cohorts(monkeypatch):
    """Two cohorts with dropout: the masks of the second are sent while the first one trains."""
    scene = SCENES["cnn-m"]._replace(samples=40, test_samples=500, max_steps=2)
    monkeypatch.setattr(cohorts, "MOST_ROWS", 5)
    with pretended_device() as device:
        how, found = counts(scene, device)
        monkeypatch.setattr(transfers, "MOST_PINNED", 1)
        _, plain = counts(scene, device)
    assert how == "in cohorts of 5" and found.sent == plain.sent == 4
    assert found.waits == 1 and plain.waits == 1 + plain.sent, "CUDA waits in a copy from ordinary memory"


def test_what_is_sent_to_cuda_is_pinned(monkeypatch):
    """Otherwise CUDA waits after all. There is no CUDA here: torch is asked to pin, and refuses."""
    asked = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: asked.append(tensor.shape) or tensor)
    with contextlib.suppress(RuntimeError, AssertionError):
        transfers.sent([np.zeros(3), np.zeros((2, 2))], torch.device("cuda"))
    assert asked == [(7,)]


def test_sixteen_fused_runs_take_a_tenth_of_the_launches():
    """With sixteen learning rates; how many nodes each run trains changes no count."""
    with pretended_device() as device:
        found = fused_counts(SCENES["cnn-m"]._replace(nodes=2), device, rates=FUSED_RUNS)
    assert found.runs == 16 and found.share <= MOST_FUSED, found


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_follows_the_shapes():
    scene = SCENES["cnn-c"]
    found = Worker(scene.experiment(), scene.population()).gpu_needs()
    images = 3 * 32 * 32 * (2_000 + 1_000)
    assert found.context == CONTEXT and images < found.data < images + 50_000 and found.total == sum(found)
    together = Worker(scene.experiment(vectorize="on"), scene.population()).gpu_needs()
    larger = Worker(scene.experiment(vectorize="on", batch_size=40), scene.population()).gpu_needs()
    assert found.rows < together.rows < larger.rows < 2 * together.rows and found.updates == together.updates


def test_a_share_that_is_too_small_is_refused_with_the_one_that_fits():
    need = GpuNeeds(CONTEXT, 200 * 10**6, 3 * 10**9, 10**9)
    refuse_beyond(need, 16e9, 0.3333)
    with pytest.raises(
        InputError, match=r"^gpus: 0.25 needs about 4.8 GB .*0.25 of a GPU with 16.0 GB is 4.0 GB"
    ) as error:
        refuse_beyond(need, 16e9, 0.25)
    assert "at most 3 fit: --gpus-per-actor 0.3333, in a study" in str(error.value), "three times 0.3334 is too much"
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"at most 2 fit: --gpus-per-actor 0.5,"):
        refuse_beyond(need, 3.00001 * need.total, 0.25)
    with pytest.raises(InputError, match="use a GPU with more memory"):
        refuse_beyond(need, 4e9, 1.0)


IMAGES = {("cnn-m", "mnist"): (60_000, 1, 28, 28), ("cnn-c", "cifar10"): (50_000, 3, 32, 32)}
A10G, A100 = 23.6e9, 42.4e9
"""Bytes that torch finds on GPUs that are sold with 24 and 40 GB."""


@pytest.mark.parametrize(("model", "dataset"), IMAGES)
def test_the_shares_that_the_readme_names_are_not_refused(model, dataset):
    """Of the paper's models on data sets of their size."""
    count, *shape = IMAGES[model, dataset]
    e = Experiment(model=model, dataset=dataset, vectorize="on")
    images = (np.zeros((size, *shape), dtype=np.uint8) for size in (count, 10_000))
    train, test = ((x, np.zeros(len(x), dtype=np.int64)) for x in images)
    held = np.arange(e.nodes * e.samples_per_node).reshape(e.nodes, -1)
    population = from_lists(Samples(*train, *test, mean=0.5, deviation=0.25), list(held), np.ones(e.nodes, dtype=bool))
    need = Worker(e, population).gpu_needs()
    readme = (ROOT / "cluster" / "README.md").read_text()
    for share, memory in ((0.04, A10G), (0.025, A100)):
        refuse_beyond(need, memory, share)
        assert f"\n| {share:g} | {round(1 / share)}: " in readme
    assert f"{need.total / 1e9:.2f} GB for {model.upper()}" in readme
    with pytest.raises(InputError, match="gpus: 0.025 needs about"):
        refuse_beyond(need, A10G, 0.025)
