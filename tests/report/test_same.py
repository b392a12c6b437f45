"""`fedpns same`: a changed bit, setting, version or data set is found where it begins, and named."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from fedpns_ray import Experiment, Interrupted, run
from fedpns_ray.records.lines import to_lines
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.summary import Summary, sha256, to_content
from fedpns_ray.reporting.sameness import sameness
from fedpns_ray.runtime.layout import Layout
from fedpns_ray.terminal.command_line import main

E = Experiment(strategy="fedpns", model="mlr", nodes=12, fraction=0.5, rounds=6, samples_per_node=40, lr=0.05)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "r"
    run(E, folder, progress=False)
    return folder


@pytest.fixture
def copy(made, tmp_path):
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def rewritten(folder, change):
    """Change the records of a finished run, and make its digests agree: as another machine would have left it."""
    there = RunFolder(folder)
    records, summary = there.records(), there.summary()
    for record in records:
        record.pop("chain", None)
    change(records)
    content = to_lines(records)[0]
    (folder / "rounds.jsonl").write_bytes(content)
    import hashlib

    summary[Summary.records_sha256] = hashlib.sha256(content).hexdigest()
    (folder / "summary.json").write_bytes(to_content(summary))


def test_a_repeated_run_is_the_same(made, tmp_path, capsys):
    run(E, tmp_path / "again", progress=False)
    assert main(["same", str(made), str(tmp_path / "again")]) == 0
    assert capsys.readouterr().out == "the same to the bit: 6 rounds and the weights\n"


def test_in_another_layout(cluster, made, tmp_path):
    run(E, tmp_path / "there", layout=Layout(actors=2, gpus_per_actor=0), progress=False)
    assert sameness(made, tmp_path / "there").same


def test_a_changed_bit_is_found_with_its_round_node_and_field(made, copy, capsys):
    def nudge(records):
        norms = records[3]["gradient_norms"]
        norms[2] = float(np.nextafter(norms[2], 9))
        records[4]["train_loss"] += 1

    rewritten(copy, nudge)
    assert main(["same", str(made), str(copy)]) == 1
    said = capsys.readouterr().out
    node = RunFolder(made).records()[3].drawn[2]
    assert said.startswith(f"not the same: in round 4 gradient_norms differs (node {node}: ")
    assert said.endswith("Likely reason: none is known: settings, data, versions, code and hardware are the same.\n")


def test_another_draw_names_the_node(made, copy):
    def swap(records):
        record = records[1]
        gone = record["drawn"].pop(0)
        record["drawn"].append(next(node for node in range(gone + 1, 12) if node not in record["drawn"]))

    rewritten(copy, swap)
    first = RunFolder(made).records()[1].drawn[0]
    assert sameness(made, copy).differences == [f"in round 2 drawn differs (node {first} only in the first)"]


def test_changed_weights(made, copy):
    weights = RunFolder(copy).weights()
    weights[5] = np.nextafter(weights[5], np.float32(9))
    (copy / "weights.safetensors").write_bytes(safetensors.numpy.save({"weights": weights}))
    summary = RunFolder(copy).summary()
    summary[Summary.weights_sha256] = sha256(weights)
    (copy / "summary.json").write_bytes(to_content(summary))
    assert sameness(made, copy).differences == ["all 6 records are equal, but the weights are not"]


def test_a_changed_setting_is_the_reason(made, tmp_path):
    run(E.but(lr=0.06), tmp_path / "faster", progress=False)
    found = sameness(made, tmp_path / "faster")
    assert found.differences == ["in round 1 lr differs (0.05 and 0.06)"]
    assert found.reasons == ["lr is 0.05 in the first, 0.06 in the second"]
    run(E.but(samples_per_node=41), tmp_path / "more", progress=False)
    found = sameness(made, tmp_path / "more")
    assert found.differences[0].startswith("in round 1 train_loss differs (")
    assert found.reasons == ["samples_per_node is 40 in the first, 41 in the second", "the populations differ"]


def test_a_changed_version_or_cpu_is_the_reason(made, copy):
    rewritten(copy, lambda records: records[0].update(train_loss=1.0))
    schema = json.loads((copy / "schema.json").read_text())
    schema["made_with"] |= {"torch": "2.12.0", "cpu": "another (AVX2)"}
    (copy / "schema.json").write_text(json.dumps(schema))
    reasons = sameness(copy, made).reasons
    assert reasons[0].startswith("torch is 2.12.0 in the first, 2.13.0") and len(reasons) == 2
    assert reasons[1].startswith("cpu is another (AVX2) in the first, ")


def test_an_unfinished_run_is_the_same_as_far_as_it_goes(made, tmp_path):
    seen = []
    with pytest.raises(Interrupted):
        run(E, tmp_path / "half", on_round=seen.append, stop=lambda: len(seen) >= 3, progress=False)
    found = sameness(tmp_path / "half", made)
    assert found.differences == ["the first has 3 rounds, the second 6; those that both have are equal"]
    assert found.rounds == 3


@pytest.mark.parametrize("what", ["gone", "empty", "damaged"])
def test_what_cannot_be_compared_is_one_line(made, copy, tmp_path, what, capsys):
    place = {"gone": tmp_path / "gone", "empty": tmp_path, "damaged": copy}[what]
    (copy / "rounds.jsonl").write_bytes(b"{}\n")
    assert main(["same", str(made), str(place)]) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1 and ("damaged" if what == "damaged" else "no run") in said
