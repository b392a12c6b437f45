"""How many trials fit, and what is refused."""

from pathlib import Path

import pytest

from fedpns_ray import InputError
from fedpns_ray.runtime.layout import Machine
from fedpns_ray.study.packing import pack
from fedpns_ray.study.study_file import read_study


@pytest.fixture
def study(tmp_path: Path):
    def make(text=""):
        (tmp_path / "s.yaml").write_text("base: {nodes: 20, fraction: 0.5, rounds: 2}\n" + text)
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
        ("gpus_per_trial: 0.3", [machine(64, 2)], 6, {"CPU": 1, "GPU": 0.3}),
        ("gpus_per_trial: 2", [machine(8, 4), machine(8, 3)], 3, {"CPU": 1, "GPU": 2}),
        ("gpus_per_trial: 0", [machine(4, 1)], 4, {"CPU": 1}),
    ],
)
def test_one_process_a_trial(study, text, machines, at_once, bundle):
    packing = pack(study(text), machines)
    assert packing.at_once == at_once and packing.bundles == (bundle,) and packing.plan is None


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
