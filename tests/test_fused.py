"""Fused runs: one worker answers many, and none of them notices."""

import numpy as np
import pytest

from benchmarks.gpu.pretended import pretended_device
from benchmarks.gpu.scenes import SCENES
from fedpns_ray import Experiment, run
from fedpns_ray.core.fused import FusedWorker
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population
from fedpns_ray.data.population import from_lists
from fedpns_ray.runtime.driver import Recording
from fedpns_ray.runtime.fused import fused
from fedpns_ray.runtime.in_process import in_process
from fedpns_ray.strategies import Objective
from tests.test_run import untimed

SMALL = {"nodes": 12, "fraction": 0.5, "samples_per_node": 40, "epochs": 1, "rounds": 5}
TOLERANCE = 1e-3
"""Of the norm of what a few rounds have changed: how far rounding may carry a model in a cohort with more rows."""


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def assorted(**more):
    """Runs that share their shapes and little else."""
    small = {**SMALL, **more}
    return [
        Experiment(strategy="fedpns", **small),
        Experiment(strategy="fedpns", alpha=1, beta=0.5, seed=2, lr=0.05, **small),
        Experiment(strategy="fedavg", **{**small, "rounds": 3, "nodes": 10}),
        Experiment(strategy="scaffold", seed=2, **small),
        Experiment(strategy="power-of-choice", choices=8, seed=3, **small),
        Experiment(strategy="fedprox", metrics="macro-f1,node-fairness", lr=0.02, evaluate_every=2, **small),
        Experiment(
            strategy="fedavg", drop_probability=0.3, epochs=2, **{k: v for k, v in small.items() if k != "epochs"}
        ),
        Experiment(strategy="gpfl", seed=3, lr_decay=0.9, **small),
        Experiment(strategy="tifl", devices="log-normal", compression="top-k", centralised=True, **small),
    ]


def together(experiments, populations=None, device="cpu", outs=None):
    populations = populations or [build_population(e) for e in experiments]
    recordings = [Recording(out) for out in outs] if outs else [Recording()] * len(experiments)
    with fused(experiments, populations, recordings, device) as driver:
        while driver.living:
            driver.step()
    return driver


def alone(e, population=None, device="cpu"):
    with in_process(e, population or build_population(e), device=device) as driver:
        while driver.step():
            pass
        return driver.finish()


def assert_same(found, expected):
    assert found.summary.weights_sha256 == expected.summary.weights_sha256
    assert untimed(found.records) == untimed(expected.records)
    assert found.summary.training == expected.summary.training


@pytest.mark.parametrize(("vectorize", "batch_size"), [("auto", 20), ("on", 20), ("on", 64)])
def test_mlr_has_the_bits_that_it_has_alone(vectorize, batch_size):
    """Whatever the strategy, the seed, the data, the learning rate and the rounds; `on` fuses the training, too."""
    experiments = assorted(vectorize=vectorize, batch_size=batch_size)
    found = together(experiments)
    assert not found.errors and len(found.results) == len(experiments)
    for k, e in enumerate(experiments):
        assert_same(found.results[k], alone(e))


def images(name, runs):
    """Experiments with one set of images and other nodes, for each run its own."""
    scene, rng = SCENES[name]._replace(nodes=4, samples=40, test_samples=600, max_steps=2), np.random.default_rng(1)
    whole, found = scene.population(), [scene.experiment(**{"rounds": 2, **more}) for more in runs]
    held = [rng.permutation(160)[: e.nodes * 40].reshape(e.nodes, 40) for e in found]
    return found, [from_lists(whole.samples, list(mine), np.ones(len(mine), dtype=bool)) for mine in held]


RUNS = [
    {"strategy": "fedpns"},
    {"lr": 0.05, "seed": 2, "metrics": "macro-f1"},
    {"rounds": 1, "nodes": 3},
    {"strategy": "scaffold", "seed": 3},
    {"strategy": "fedprox", "optimizer": "adam", "lr": 0.001},
]


@pytest.mark.parametrize("device", ["cpu", "a GPU"])
def test_cnn_m_differs_by_rounding_and_says_so(device):
    experiments, populations = images("cnn-m", [{**more, "vectorize": "on"} for more in RUNS])
    expected = [alone(e, population) for e, population in zip(experiments, populations, strict=True)]
    with pretended_device() as there:
        found = together(experiments, populations, there if device == "a GPU" else "cpu")
    assert not found.errors
    rows = sum(e.nodes for e in experiments)
    for k, (e, population) in enumerate(zip(experiments, populations, strict=True)):
        mine, theirs = found.results[k], expected[k]
        start = Worker(e, population).initial_weights
        apart = np.linalg.norm(mine.weights - theirs.weights) / np.linalg.norm(theirs.weights - start)
        assert apart < TOLERANCE, (k, apart)
        assert mine.summary.training == f"in cohorts of {rows}, fused" != theirs.summary.training
        for ours, other in zip(mine.records, theirs.records, strict=True):
            assert ours.drawn == other.drawn and ours.bytes_up == other.bytes_up
            assert ours.test_loss == pytest.approx(other.test_loss, rel=1e-4)


def test_mlr_on_a_gpu_has_the_bits_that_it_has_there_alone():
    """Of one kernel: on the device that is only pretended all shapes are computed alike. A real one may round."""
    experiments, populations = images("mlr", RUNS)
    with pretended_device() as device:
        found = together(experiments, populations, device)
        expected = [alone(e, population, device) for e, population in zip(experiments, populations, strict=True)]
    for k, theirs in enumerate(expected):
        assert found.results[k].summary.weights_sha256 == theirs.summary.weights_sha256


# --- runs that leave --------------------------------------------------------------------------------------------------


def test_a_run_that_diverges_or_fails_leaves_the_others(caplog):
    """In the draw, in training, where it spoils what was answered together, and by numbers that are not finite."""
    experiments = [
        Experiment(strategy="fedpns", **SMALL),
        Experiment(strategy="fedavg", selection="tests.parts:Clumsy", **SMALL),
        Experiment(strategy="fedavg", objective="tests.test_fused:Falling", **SMALL),
        Experiment(strategy="fedavg", lr=1e38, seed=2, **SMALL),
        Experiment(strategy="fedavg", seed=3, **SMALL),
    ]
    experiments = [e.but(vectorize="on") for e in experiments]
    found = together(experiments)
    assert set(found.errors) == {1, 2} and set(found.results) == {0, 3, 4}
    assert "a mistake" in str(found.errors[1]) and "tests/test_fused.py" in str(found.errors[2])
    assert found.results[3].diverged and "no longer fused" not in caplog.text
    for k in (0, 3, 4):
        expected = alone(experiments[k])
        assert found.results[k].summary.weights_sha256 == expected.summary.weights_sha256
        assert len(found.results[k].records) == len(expected.records)
    named = [record.round for record in found.results[0].records if record.get("faults")]
    assert named == [1], "the round that was answered again says so"


class Falling(Objective):
    """Fails in every step."""

    name = "falling"

    def correct(self, gradient, weights, anchor):
        raise ArithmeticError("it fell")


def test_what_cannot_be_answered_together_is_answered_alone(monkeypatch, caplog):
    experiments = assorted()[:3]
    expected = [alone(e) for e in experiments]

    def too_much(self, asked):
        raise MemoryError("no room for all")

    monkeypatch.setattr(FusedWorker, "answer", too_much)
    found = together(experiments)
    assert caplog.text.count("3 runs are no longer fused: ") == 1
    for k, theirs in enumerate(expected):
        assert found.results[k].summary.weights_sha256 == theirs.summary.weights_sha256


def test_an_interrupted_run_resumes_fused_with_others_or_alone(tmp_path):
    experiments = assorted()[:4]
    outs = [tmp_path / str(k) for k in range(4)]
    populations = [build_population(e) for e in experiments]
    with fused(experiments, populations, [Recording(out) for out in outs]) as driver:
        driver.step(), driver.step()
        assert len(driver.step()) == 4
    assert not driver.results
    first = run(experiments[0], outs[0], progress=False)
    pair = together(experiments[1:3], populations[1:3], outs=outs[1:3])
    last = together(experiments[3:], populations[3:], outs=outs[3:])
    resumed = [first, pair.results[0], pair.results[1], last.results[0]]
    for found, e in zip(resumed, experiments, strict=True):
        assert_same(found, alone(e))


def test_a_folder_that_cannot_be_opened_concerns_its_own_run(tmp_path):
    experiments = assorted()[:2]
    (tmp_path / "file").write_text("in the way")
    found = together(experiments, outs=[tmp_path / "file", tmp_path / "run"])
    assert set(found.errors) == {0} and found.results[1].summary.rounds == 5
