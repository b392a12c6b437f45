"""The examples of parts of one's own, one kind after another and all together, through every door: the same bits.

From the command line, in a study and from Python; in process and on Ray.
"""

import json
from pathlib import Path

import pytest

from fedpns_ray import Experiment, load, run, run_study
from fedpns_ray.runtime.layout import Layout
from fedpns_ray.terminal.command_line import main
from tests.runtime.test_same_bits import assert_same

ROOT = Path(__file__).parents[2]
RINGS = {"dataset": "examples.own_dataset:Rings", "noise": 0.05}
DIGITS = {"dataset": "mnist", "model": "mlr"}
SMALL = {"nodes": 6, "fraction": 0.5, "rounds": 3, "strategy": "fedpns"}
EXAMPLES = {
    "newcomers": {**RINGS, "strategy": "examples.newcomers:Newcomers", "patience": 2},
    "own_objective": {**RINGS, "objective": "examples.own_objective:Inertia", "push": 0.2},
    "own_aggregation": {**RINGS, "aggregation": "examples.own_aggregation:TrimmedMean", "trim": 0.4},
    "own_server": {**RINGS, "server": "examples.own_server:Shrinking", "server.power": 0.5},
    "own_optimizer": {**RINGS, "optimizer": "examples.own_optimizer:Lion", "keep": 0.95},
    "own_compression": {**RINGS, "compression": "examples.own_compression:EightBits", "compression.feedback": True},
    "own_availability": {**RINGS, "availability": "examples.own_availability:Shifts", "shifts": 2, "shift_rounds": 1},
    "own_dataset": RINGS,
    "own_partition": {**DIGITS, "partition": "examples.own_partition:Favourites", "favour": 0.8},
    "own_model": {"dataset": "mnist", "model": "examples.own_model:SmallNet", "buffers": "average"},
    "own_loss": {**RINGS, "loss": "examples.own_loss:focal"},
    "own_metric": {**RINGS, "metrics": "macro-f1,examples.own_metric:KappaMetric"},
}
ALONE = [name for name in EXAMPLES if name not in ("own_dataset", "own_partition", "own_model")]
TOGETHER = [
    {key: value for name in (*ALONE, "own_partition") for key, value in EXAMPLES[name].items()} | {**RINGS, **SMALL}
    | {"model": "mlr", "strategy": "examples.newcomers:Newcomers"},
    {**SMALL, **EXAMPLES["own_model"], "samples_per_node": 40, "metrics": "label-accuracy,node-fairness"},
]  # fmt: skip
"""All that fit one another, and the model, which needs images."""


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_every_example_is_tried():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*EXAMPLES, "plateau"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_matters_and_runs_from_the_command_line(mnist, name, tmp_path, capsys):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 40
    settings = SMALL | EXAMPLES[name]
    result = run(Experiment(**settings), progress=False)
    built_in = set(Experiment.model_fields) - {"parameters"}
    words = []
    for key, value in settings.items():
        own = key not in built_in
        words += ["--set", f"{key}={value}"] if own else [f"--{key.replace('_', '-')}", str(value)]
    assert main(["run", "--in-process", "--json", "--out", str(tmp_path / "r"), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["weights_sha256"] == result.summary.weights_sha256
    assert found["population"]["sha256"] == result.summary.population["sha256"]
    if name not in ("own_dataset", "own_metric"):  # a metric looks on, and nothing stands in for the rings
        plain = run(Experiment(**SMALL, **(DIGITS if settings["dataset"] == "mnist" else RINGS)), progress=False)
        assert plain.summary.weights_sha256 != result.summary.weights_sha256


@pytest.mark.parametrize("settings", TOGETHER, ids=["all parts", "a model"])
def test_together_on_ray_and_in_a_study(cluster, mnist, settings, tmp_path):
    e = Experiment(**settings)
    alone = run(e, progress=False)
    there = run(e, layout=Layout(actors=2, gpus_per_actor=0), progress=False)
    assert_same(there, alone)
    for mine, theirs in zip(alone.records, there.records, strict=True):
        assert [mine.get(key) for key in ("cohens_kappa", "node_accuracy")] == [
            theirs.get(key) for key in ("cohens_kappa", "node_accuracy")
        ]
    run_study({"base": settings, "axes": {"lr": [e.lr, 0.5]}, "gpus_per_trial": 0}, tmp_path / "s", progress=False)
    trials = [load(path.parent) for path in (tmp_path / "s" / "trials").glob("*/summary.json")]
    digests = {trial.experiment.lr: trial.summary.weights_sha256 for trial in trials}
    assert digests[e.lr] == alone.summary.weights_sha256 != digests[0.5]
