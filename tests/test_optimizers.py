"""Local optimisers: the steps of torch.optim, on the flat vector of a node and on the matrix of a cohort."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from examples.own_optimizer import Lion
from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core.local_steps import local_samples
from fedpns_ray.core.models import build_model
from fedpns_ray.core.optimizers.sgd import SGD
from fedpns_ray.core.streams import stream, torch_seed
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population
from fedpns_ray.naming import folder_name
from fedpns_ray.reporting.collecting import _axes as distinguishing
from fedpns_ray.study.study_file import read_study
from fedpns_ray.terminal.command_line import main

ROOT = Path(__file__).parent.parent
SMALL = {"nodes": 8, "fraction": 0.5, "samples_per_node": 50, "rounds": 3, "epochs": 2}
RULES = {
    "momentum": ({"momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": ({"momentum": 0.8, "nesterov": True}, torch.optim.SGD, {"momentum": 0.8, "nesterov": True}),
    "decay": ({"momentum": 0.5, "weight_decay": 0.1}, torch.optim.SGD, {"momentum": 0.5, "weight_decay": 0.1}),
    "clipped": ({"clip_gradient": 0.3, "weight_decay": 0.1}, torch.optim.SGD, {"weight_decay": 0.1}),
    "adam": ({"optimizer": "adam"}, torch.optim.Adam, {}),
    "adam, decay": (
        {"optimizer": "adam", "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-4, "weight_decay": 0.1},
        torch.optim.Adam,
        {"betas": (0.8, 0.99), "eps": 1e-4, "weight_decay": 0.1},
    ),
    "adamw": ({"optimizer": "adamw", "weight_decay": 0.5}, torch.optim.AdamW, {"weight_decay": 0.5}),
}
PATHS = {
    "one node": {"dataset": "mnist", "model": "cnn-m"},
    "a cohort": {"dataset": "mnist", "model": "mlr"},
}


@pytest.fixture(autouse=True)
def single_thread():
    with one_thread():
        yield


def by_torch(e, population, rule, options, node=5, t=2):
    """A node's update by torch.optim on the module's own parameters."""
    s, own = population.samples, population.held_by(node)
    x, y = (torch.from_numpy(s.train_x[own]) / 255 - s.mean) / s.deviation, torch.from_numpy(s.train_y[own])
    module = build_model(e.model, s.shape, s.classes, e.seed).train()
    before = torch.cat([p.detach().flatten() for p in module.parameters()])
    optimiser = rule(module.parameters(), lr=e.lr_at(t), **options)
    shuffle = stream(e.seed, "shuffle", t, node)
    torch.manual_seed(torch_seed(e.seed, "dropout", t, node))
    for _ in range(e.epochs):
        for batch in torch.from_numpy(shuffle.permutation(len(y))).split(e.batch_size):
            optimiser.zero_grad()
            F.cross_entropy(module(x[batch]), y[batch]).backward()
            if clip := e.parameters.get("clip_gradient"):
                torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimiser.step()
    return (torch.cat([p.detach().flatten() for p in module.parameters()]) - before).numpy()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", RULES)
def test_against_torch(name, path, mnist):
    settings, rule, options = RULES[name]
    e = Experiment(**{**SMALL, **PATHS[path], **settings})
    population = build_population(e)
    worker = Worker(e, population)
    together = worker.train(worker.initial_weights, 2, range(8))
    expected = by_torch(e, population, rule, options)
    size = np.abs(expected).max()
    np.testing.assert_allclose(together.deltas[5], expected, atol=2e-3 * size if "adam" in name else 2e-5 * size)
    plain = by_torch(e.but(optimizer="sgd"), population, torch.optim.SGD, {})
    assert np.abs(expected - plain).max() > 0.05 * size  # the rule matters
    for ids in ([5], [1, 5, 6]):  # the same to the bit whoever trains beside it, and again: nothing is kept
        alone = worker.train(worker.initial_weights, 2, ids)
        assert np.array_equal(alone.deltas, together.deltas[ids]) and np.array_equal(alone.losses, together.losses[ids])


def test_every_row_is_clipped_by_its_own_norm():
    """Row 1 has norm 5 and becomes (0.6, 0.8); row 2 has norm 0.5 and stays. w - 0.5 g, from w = 0."""
    weights, gradients = torch.zeros(2, 2), torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    SGD(clip_gradient=1.0).start(weights, 0.5)(gradients)
    torch.testing.assert_close(weights, torch.tensor([[-0.3, -0.4], [-0.15, -0.2]]))


@pytest.mark.parametrize("path", PATHS)
def test_at_most_so_many_steps(path, mnist):
    """50 samples in batches of 20 are 3 steps an epoch, 6 in 2 epochs; 4 steps use 50 + 20 of them."""
    e = Experiment(**{**SMALL, **PATHS[path]}, devices="log-normal")
    population = build_population(e)
    trained = {most: Worker(e.but(max_steps=most), population) for most in (0, 1, 4, 6, 100)}
    found = {most: worker.train(worker.initial_weights, 1, range(4)) for most, worker in trained.items()}
    assert {most: set(updates.steps.tolist()) for most, updates in found.items()} == {
        0: {6},
        1: {1},
        4: {4},
        6: {6},
        100: {6},
    }
    assert np.array_equal(found[0].deltas, found[6].deltas) and np.array_equal(found[0].deltas, found[100].deltas)
    assert not np.array_equal(found[4].deltas, found[6].deltas)
    assert [int(local_samples(e.but(max_steps=k), np.array([50]))[0]) for k in (0, 1, 3, 4, 6, 9)] == [
        100,
        20,
        50,
        70,
        100,
        100,
    ]


def test_fewer_steps_take_less_simulated_time():
    """A synthetic node trains on 160 of its 200 samples, 10 a second: 3 epochs, or 4 steps with 20 samples each."""
    devices = {"devices": "log-normal", "device_spread": 0, "device_fading": "none", "device_speed": 10}
    e = Experiment(strategy="fedavg", nodes=4, samples_per_node=200, epochs=3, rounds=1, device_uplink=1e12, **devices)
    assert run(e).records[0]["simulated_seconds"] == pytest.approx(3 * 160 / 10, rel=1e-6)
    assert run(e.but(max_steps=4)).records[0]["simulated_seconds"] == pytest.approx(4 * 20 / 10, rel=1e-6)


def test_plain_steps_are_not_written_and_others_are_read_back():
    e = Experiment(strategy="fedavg")
    assert not {"optimizer", "momentum", "nesterov", "weight_decay", "clip_gradient", "max_steps"} & set(e.settings())
    assert folder_name(e) == folder_name(Experiment(strategy="fedavg", optimizer="sgd", momentum=0, max_steps=0))
    for more in ({"momentum": 0.9}, {"optimizer": "adamw", "weight_decay": 0.0}, {"optimizer": SGD, "max_steps": 3}):
        other = Experiment(strategy="fedavg", **more)
        assert Experiment(**other.settings()) == other and folder_name(other) != folder_name(e)
    assert other.optimizer == "sgd"  # the class of a registered part is written by its name
    assert e.but(optimizer="adam").but(strategy="fedpns").optimizer == "adam"  # it is not the strategy's
    assert e.but(optimizer="adam", beta1=0.5).but(optimizer="sgd") == e


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            ["--optimizer", "adagrad"],
            "optimizer: 'adagrad' is unknown; choose from sgd, adam, adamw, or package.module:Class",
        ),
        (["--optimizer", "adam", "--momentum", "0.9"], "it is only used with optimizer sgd, and optimizer is adam"),
        (["--momentum", "1"], "momentum: '1' is not allowed; it must be less than 1"),
        (["--nesterov", "true"], "nesterov: 'true' is not allowed; it needs a momentum above 0"),
        (["--max-steps", "-1"], "max_steps: '-1' is not allowed"),
        (["--optimizer", "examples.newcomers:LeastDrawn"], "is not a subclass of fedpns_ray.core.optimizers.Optimizer"),
    ],
)
def test_refused_in_one_line(flags, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["run", "--in-process", *flags]) == 2
    said = capsys.readouterr().err
    assert message in said and len(said.strip().splitlines()) == 1


def test_lion_by_hand():
    """m = 0, g = (2, -1): w = -0.1 (1, -1), m = 0.01 g; then g = (-0.1, 0): 0.9 m + 0.1 g = (0.008, -0.009)."""
    weights = torch.zeros(2)
    step = Lion().start(weights, 0.1)
    for gradient in ([2.0, -1.0], [-0.1, 0.0]):
        step(torch.tensor(gradient))
    torch.testing.assert_close(weights, torch.tensor([-0.2, 0.2]))


def test_a_parameter_out_of_range_is_refused():
    with pytest.raises(InputError, match="beta1: 1 is not allowed; it must be less than 1"):
        Experiment(optimizer="adam", beta1=1)


def test_axes_of_a_study():
    """A momentum of 0 is not written, and still tells a run from one with 0.9; adam has no momentum to vary."""
    base = {"model": "mlr", "rounds": 2, "strategy": "fedpns"}
    axes = {"optimizer": ["sgd", "examples.own_optimizer:Lion"], "momentum": [0, 0.9], "server": ["none", "adam"]}
    study = read_study({"base": base, "axes": {**axes, "server.lr": [0.1, 0.01]}})
    assert len({folder_name(trial.experiment) for trial in study.trials}) == len(study.trials) == (2 + 1) * (1 + 2)
    e = Experiment(**base)
    for option in ({"momentum": 0.9}, {"optimizer": "adam"}, {"max_steps": 3}, {"server": "adam"}):
        assert set(option) <= set(distinguishing([e, e.but(**option)])), option
