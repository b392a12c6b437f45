"""`fedpns verify`: trials of a real study are run again in another layout; one that was tampered with is found."""

import json
import shutil

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, run, run_study
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.summary import to_content
from fedpns_ray.terminal.command_line import main
from fedpns_ray.verification import verify
from tests.report.test_same import rewritten

BASE = {"model": "mlr", "nodes": 8, "fraction": 0.5, "rounds": 3, "samples_per_node": 30}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    out = tmp_path_factory.mktemp("verify") / "s"
    run_study({"base": BASE, "axes": {"strategy": ["fedpns", "fedavg"]}, "seeds": [1, 2]}, out, progress=False)
    return out


def test_a_study_holds_on_actors(study, capsys):
    assert main(["verify", str(study), "--sample", "1", "--seed", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "the same to the bit: 3 rounds and the weights" in said[-2] and said[-1] == "1 of 1 hold"


def test_the_sample_is_chosen_by_the_seed(study):
    names = [[one.name for one in verify(study, sample=2, seed=seed)] for seed in (1, 1, 2, 3, 4)]
    assert names[0] == names[1] and len({tuple(some) for some in names}) > 1
    assert len([*verify(study, sample=99)]) == 4


def test_a_changed_bit_version_and_setting_are_each_found_and_named(study, tmp_path, capsys):
    copy = tmp_path / "s"
    shutil.copytree(study, copy)
    bit, version, setting, untouched = sorted((copy / "trials").iterdir(), key=lambda path: "fedavg" in path.name)

    def nudge(records):
        norms = records[1]["gradient_norms"]
        norms[0] = float(np.nextafter(norms[0], 9))

    node = RunFolder(bit).records()[1].drawn[0]
    rewritten(bit, nudge)
    rewritten(version, lambda records: records[2].update(train_loss=0.25))
    schema = json.loads((version / "schema.json").read_text())
    schema["made_with"]["torch"] = "2.12.0"
    (version / "schema.json").write_text(json.dumps(schema))
    config = (setting / "config.yaml").read_text()
    (setting / "config.yaml").write_text(config.replace("lr: 0.01\n", "lr: 0.02\n"))
    assert main(["verify", str(copy), "--sample", "4", "--in-process"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    said = dict(line.split(": ", 1) for line in lines)
    assert said[bit.name].startswith(f"not the same: in round 2 gradient_norms differs (node {node}: ")
    assert "none is known" in said[bit.name]
    assert said[version.name].startswith("final accuracies are 0.00 points apart, within the tolerance of 1.00 points")
    assert "in round 3 train_loss differs (0.25 and" in said[version.name]
    assert "Likely reason: torch is 2.12.0 in the first, 2." in said[version.name]
    assert said[setting.name].startswith("not what study.yaml describes: lr is 0.02 in config.yaml, 0.01 there; ")
    assert "in round 1 lr differs (0.01 and 0.02)" in said[setting.name]
    assert said[untouched.name] == "the same to the bit: 3 rounds and the weights" and last == "2 of 4 hold"


@pytest.mark.parametrize(
    "off, holds, words", [(0.005, True, "0.50 points apart, within"), (0.05, False, "5.00 points apart, beyond")]
)
def test_made_elsewhere_it_is_held_to_a_tolerance(tmp_path, off, holds, words):
    folder = tmp_path / "r"
    run(Experiment(**BASE), folder, progress=False)
    rewritten(folder, lambda records: records[0].update(train_loss=0.25))
    summary = RunFolder(folder).summary()
    summary["final_accuracy"] -= off
    (folder / "summary.json").write_bytes(to_content(summary))
    schema = json.loads((folder / "schema.json").read_text())
    schema["made_with"]["cpu"] = "another (AVX2)"
    (folder / "schema.json").write_text(json.dumps(schema))
    (found,) = verify(folder)
    assert found.holds is holds and words in str(found) and "cpu is another (AVX2) in the first" in str(found)


@pytest.mark.parametrize("factor, holds", [(1.004, True), (1.1, False)])
def test_a_regression_made_elsewhere_is_held_to_its_loss(tmp_path, factor, holds):
    folder = tmp_path / "r"
    run(Experiment(dataset="tests.small_data:Lines", nodes=4, fraction=0.5, rounds=2, lr=0.1), folder, progress=False)
    rewritten(folder, lambda records: records[0].update(train_loss=0.25))
    summary = RunFolder(folder).summary()
    summary["last_loss"] /= factor
    (folder / "summary.json").write_bytes(to_content(summary))
    schema = json.loads((folder / "schema.json").read_text())
    schema["made_with"]["torch"] = "2.12.0"
    (folder / "schema.json").write_text(json.dumps(schema))
    (found,) = verify(folder)
    assert found.holds is holds and f"last losses are {100 * (factor - 1):.2f} % apart, " in str(found)
    assert ("within" if holds else "beyond") + " the tolerance of 1.00 %" in str(found)


def test_bad_input_is_one_line(study, tmp_path, capsys):
    for words, said in (
        ([str(tmp_path / "gone")], "there is no such folder"),
        ([str(tmp_path)], "holds no finished run"),
        (["s3://bucket/study"], "is in a bucket"),
        ([str(study), "--sample", "0"], "sample: 0 is not allowed"),
        ([str(study), "--seed", "x"], "seed: 'x' is not allowed"),
        ([str(study), "--seed", "²"], "seed: '²' is not allowed"),
        ([str(study), "--sample", "9" * 5000], "sample: '999"),
    ):
        assert main(["verify", *words]) == 2
        found = capsys.readouterr().err
        assert said in found and len(found.strip().splitlines()) == 1
    with pytest.raises(InputError):
        verify(tmp_path)
