"""Trials that get GPUs which torch cannot use."""

from ray.tune import Callback
from torch import nn

from fedpns_ray import load, read_study, run_study
from fedpns_ray.records.storage import Storage
from fedpns_ray.study import engine
from fedpns_ray.study.tune import Watching
from fedpns_ray.terminal.command_line import main

STUDY = "base: {nodes: 10, samples_per_node: 50, epochs: 1, rounds: 3}\n"


def test_refused_in_one_line_before_anything_starts(cluster, tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(STUDY + "gpus_per_trial: 0.5\n")
    command = ["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o")]
    assert main(command) == 2
    printed = capsys.readouterr()
    *progress, refusal = printed.err.splitlines()
    assert refusal.startswith("fedpns: gpus_per_trial: machine ") and "torch sees no CUDA there" in refusal
    assert progress[-1].startswith("Ray: ") and not (tmp_path / "o").exists()
    assert main([*command, "--cpu-fallback"]) == 0
    (trial,) = (tmp_path / "o" / "trials").iterdir()
    assert load(trial).summary["device"] == "cpu"


def test_the_study_file_may_allow_it(cluster, tmp_path):
    (tmp_path / "s.yaml").write_text(STUDY + "gpus_per_trial: 0.5\ncpu_fallback: true\n")
    assert main(["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o")]) == 0
    (tmp_path / "t.yaml").write_text(STUDY + "gpus_per_trial: 0\n")
    assert main(["study", str(tmp_path / "t.yaml"), "--out", str(tmp_path / "p")]) == 0


def linear(shape, classes):
    return nn.Linear(shape[0], classes)


class Reserved(Callback):
    """What Tune has reserved for each trial that it starts."""

    def __init__(self):
        self.by_model = {}

    def __getstate__(self):
        return {}

    def on_trial_start(self, iteration, trials, trial, **info):
        model = trial.config["experiment"]["model"]
        self.by_model.setdefault(model, []).append(trial.placement_group_factory.bundles)


def test_trials_without_a_gpu_run_beside_those_with_one(cluster, tmp_path):
    other = "tests.runtime.test_gpu_study:linear"
    base = {"nodes": 10, "samples_per_node": 50, "epochs": 1, "rounds": 2, "dataset": "synthetic"}
    study = read_study({"base": base, "axes": {"model": ["mlr", other]}, "seeds": "1-2", "cpu_fallback": True})
    reserved = Reserved()
    outcome = engine.run_study(study, Storage(tmp_path / "o"), Watching(loggers=(reserved,)))
    assert reserved.by_model == {"mlr": [[{"CPU": 1.0}]] * 2, other: [[{"CPU": 1.0, "GPU": 1.0}]] * 2}
    assert not outcome.errors and len(list((tmp_path / "o" / "trials").iterdir())) == 4


def test_what_a_trial_logs_is_logged_here_under_its_name(cluster, tmp_path, caplog):
    study = read_study({
        "base": {"nodes": 10, "samples_per_node": 50, "epochs": 1, "rounds": 2, "fraction": 0.3},
        "layout": {"actors": 2, "gpus_per_actor": 0.5, "cpus_per_actor": 0.5},
        "cpu_fallback": True,
    })  # fmt: skip
    run_study(study, tmp_path / "o", progress=False)
    said = "GPUs are assigned, but torch sees no CUDA: nodes train on the CPU, as cpu_fallback allows"
    messages = [(r.levelname, r.getMessage()) for r in caplog.records if r.name.startswith("fedpns_ray")]
    assert messages == [("WARNING", f"{study.trials[0].name}: {said}")]
