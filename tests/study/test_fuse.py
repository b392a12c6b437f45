"""Which trials are fused: those that share shapes, as many as keep every worker busy."""

import pytest

from fedpns_ray import InputError
from fedpns_ray.study import fuse
from fedpns_ray.study.engine import fused_trials
from fedpns_ray.study.fuse import checked_fuse, cohorts_of, shapes
from fedpns_ray.study.packing import Packing
from fedpns_ray.study.study_file import read_study
from fedpns_ray.study.tune import Watching
from fedpns_ray.terminal.command_line import main

MNIST = {"base": {"dataset": "mnist", "model": "mlr"}, "axes": {"strategy": ["fedpns", "fedavg"]}, "seeds": "1-50"}


def sizes(study, choice="auto", gpu=False, at_once=2):
    return [len(cohort) for cohort in cohorts_of(read_study(study).trials, choice, lambda e: gpu, at_once)]


def test_every_worker_is_busy_and_none_is_overfull():
    assert sorted(sizes(MNIST)) == [12] * 4 + [13] * 4 and sizes(MNIST, at_once=100) == []
    assert sizes(MNIST, 10) == [10] * 10 and sizes(MNIST, 64) == [50, 50] and sizes(MNIST, "off") == []


def test_on_a_core_only_what_pays_and_on_a_gpu_all():
    cnn = MNIST | {"base": {"dataset": "mnist", "model": "cnn-m"}}
    assert sizes(cnn) == [] and max(sizes(cnn, gpu=True)) == 13 and sizes(cnn, 50) == [50, 50]
    both = MNIST | {"axes": {"model": ["mlr", "cnn-m"], "batch_size": [10, 20]}, "seeds": "1-4"}
    found = cohorts_of(read_study(both).trials, 4, lambda e: False, 2)
    assert [len({shapes(trial.experiment) for trial in cohort}) for cohort in found] == [1, 1, 1, 1]
    slow = MNIST | {"base": MNIST["base"] | {"slow_fraction": 0.5, "slow_seconds": 1}}
    assert sizes(slow, 4) == []


def test_generated_data_are_shared_by_trials_with_one_seed():
    made = {"axes": {"strategy": ["fedpns", "fedavg", "fedprox"], "sigma": [0.2, 0.3]}, "seeds": "1-2"}
    found = cohorts_of(read_study(made).trials, "auto", lambda e: False, 2)
    assert [len({(t.experiment.seed, t.settings["sigma"]) for t in cohort}) for cohort in found] == [1] * 4


def test_memory_is_a_limit(monkeypatch):
    monkeypatch.setattr(fuse, "WORKER_MEMORY", 1)
    assert sizes(MNIST) == []


def test_searches_layouts_and_third_party_loggers_are_not_fused():
    packing = Packing(({"CPU": 1.0},), 2)
    study = read_study(MNIST)
    assert fused_trials(study, study.trials, packing, Watching())
    assert not fused_trials(study, study.trials, packing, Watching(loggers=(object(),)))
    spread = read_study(MNIST | {"layout": {"actors": 2}})
    assert not fused_trials(spread, spread.trials, packing, Watching())
    space = {"space": {"alpha": {"min": 1, "max": 3, "step": 1}}, "target": 0.5, "trials": 2}
    search = read_study({"base": {"strategy": "fedpns"}, "search": space, "seeds": "1-9"})
    assert not fused_trials(search, search.trials, packing, Watching())


@pytest.mark.parametrize("given", ["on", "1", "65", 0, 1.5, True, "-3"])
def test_what_is_not_allowed_is_one_line(given, tmp_path, capsys):
    with pytest.raises(InputError, match=r"fuse: .* it must be auto, off, or a number of trials from 2 to 64"):
        checked_fuse(given)
    (tmp_path / "s.yaml").write_text(f"seeds: 1\nfuse: {given}\n")
    assert main(["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o")]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "line 2: fuse: " in said and "it must be auto, off, or a number of trials from 2 to 64" in said


def test_a_flag_is_understood_and_refused_alike(tmp_path, capsys):
    assert read_study({"seeds": 1, "fuse": False}).fuse == "off" and checked_fuse("8") == 8
    (tmp_path / "s.yaml").write_text("seeds: 1\n")
    assert main(["study", str(tmp_path / "s.yaml"), "--fuse", "many", "--out", str(tmp_path / "o")]) == 2
    assert "fuse: 'many' is not allowed; it must be auto, off, or a number" in capsys.readouterr().err
