"""How many trials fit, and what is refused."""

from pathlib import Path

import pytest

from fedpns_ray import Experiment, InputError
from fedpns_ray.runtime.layout import Machine
from fedpns_ray.study.packing import holds, pack
from fedpns_ray.study.study_file import read_study


@pytest.fixture
def study(tmp_path: Path):
    def make(text="", model="cnn-m"):
        (tmp_path / "s.yaml").write_text(f"base: {{nodes: 20, fraction: 0.5, rounds: 2, model: {model}}}\n" + text)
        return read_study(tmp_path / "s.yaml")

    return make


def machine(cpus, gpus=0.0):
    return Machine("m", cpus, gpus, 64e9)


@pytest.mark.parametrize(
    ("text", "machines", "at_once", "bundle"),
    [
        ("", [machine(2)], 2, {"CPU": 1}),
        ("cpus_per_trial: 0.5", [machine(2), machine(1)], 6, {"CPU": 0.5}),
        ("cpus_per_trial: 2", [machine(3), machine(3)], 2, {"CPU": 2}),
        ("", [machine(8, 2)], 8, {"CPU": 1, "GPU": 0.25}),
        ("", [machine(2, 2), machine(0)], 2, {"CPU": 1, "GPU": 1.0}),  # no more than there are cores
        ("", [machine(4, 1), machine(8, 8)], 12, {"CPU": 1, "GPU": 0.25}),  # not by what they have on average
        ("", [machine(2, 2), machine(3, 1)], 5, {"CPU": 1, "GPU": 0.3333}),
        ("gpus_per_trial: 0.3", [machine(64, 2)], 6, {"CPU": 1, "GPU": 0.3}),
        ("gpus_per_trial: 2", [machine(8, 4), machine(8, 3)], 3, {"CPU": 1, "GPU": 2}),
        ("gpus_per_trial: 0", [machine(4, 1)], 4, {"CPU": 1}),
    ],
)
def test_one_process_a_trial(study, text, machines, at_once, bundle):
    packing = pack(study(text), machines)
    assert packing.at_once == at_once and packing.bundles == (bundle,) and packing.plan is None


def test_small_models_take_no_gpu_unless_told_to(study):
    """They are faster on a core, and so fill a machine without GPUs beside one with; others keep to the GPUs."""
    there = [machine(64), machine(8, 1)]
    assert pack(study(model="mlr"), there).bundles == ({"CPU": 1},) and pack(study(model="mlr"), there).at_once == 72
    assert pack(study(), there).bundles == ({"CPU": 1, "GPU": 0.25},) and pack(study(), there).at_once == 4
    assert pack(study("gpus_per_trial: 0.5", "mlr"), there).at_once == 2


def test_trials_of_both_kinds_run_side_by_side(study):
    """As in tune/fig3.yaml: the GPU is shared by four, and the others take the cores that are left, here and there."""
    there = [machine(64), machine(8, 1)]
    packing = pack(study("axes: {model: [mlr, cnn-m]}\nseeds: 1-100"), there)
    assert packing.at_once == 4 + 64 + 4
    assert packing.describe() == "72 trials at once, 1 CPU and 0.25 GPU each (mlr: 1 CPU)"
    assert packing.bundles_of(Experiment(model="mlr")) == ({"CPU": 1},)
    assert packing.bundles_of(Experiment(model="cnn-m")) == ({"CPU": 1, "GPU": 0.25},)
    assert holds([machine(1)], packing) and not holds([machine(0)], packing)
    assert pack(study("axes: {model: [mlr, cnn-m]}"), there).at_once == 4 + 1  # one such trial
    told = pack(study("axes: {model: [mlr, cnn-m]}\ngpus_per_trial: 0.5"), there)
    assert told.at_once == 2 and told.on_cores is None  # as they were told to


def test_spread_over_actors(study):
    packing = pack(study("layout: {actors: 3}"), [machine(4), machine(4)])
    assert packing.plan.actors == 3 and packing.at_once == 2
    packing = pack(study("layout: {actors: 4, gpus_per_actor: 0.5}"), [machine(8, 4)])
    assert packing.plan.actors_in == (1, 1, 1, 1) and packing.at_once == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpus_per_trial: 4", "4 CPU do not fit on any machine; the largest has 2 CPU .*fits: cpus_per_trial: 2"),
        ("gpus_per_trial: 0.25", "1 CPU and 0.25 GPU do not fit .*fits: gpus_per_trial: 0"),
        ("layout: {actors: 9, cpus_per_actor: 1}", "actors: 9 actors .* do not fit"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(study, text, message):
    with pytest.raises(InputError, match=message):
        pack(study(text), [machine(2), machine(2)])
