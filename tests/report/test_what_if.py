"""`fedpns what-if`: a recorded round comes back to the bit, and others do to the model what they would have."""

import json
import shutil

import pytest

from fedpns_ray import Experiment, run
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.replay import what_if
from fedpns_ray.terminal.command_line import main
from tests.report.test_same import rewritten

E = Experiment(strategy="fedpns", model="mlr", nodes=12, fraction=0.5, rounds=7, samples_per_node=40, lr=0.05)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run with checkpoints after rounds 6 and 7."""
    folder = tmp_path_factory.mktemp("made") / "r"
    run(E, folder, progress=False, checkpoint_every=2)
    return folder


@pytest.fixture
def copy(made, tmp_path):
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("round, replayed", [(7, 0), (5, 4), (1, 0)])
def test_every_round_comes_back_from_a_checkpoint_or_from_the_start(made, round, replayed):
    before = {path: path.read_bytes() for path in made.iterdir()}
    record = RunFolder(made).records()[round - 1]
    found = what_if(made, round, draw=record.drawn, random=1)
    as_drawn, same_nodes, other = found.cohorts
    assert (found.difference, found.replayed) == ("", replayed)
    assert (as_drawn.drawn, as_drawn.excluded) == (record.drawn, record.excluded)
    assert (as_drawn.accuracy, as_drawn.loss) == (record.test_accuracy, record.test_loss)
    assert same_nodes.loss == as_drawn.loss and other.loss != as_drawn.loss
    assert before == {path: path.read_bytes() for path in made.iterdir()}


def test_another_selection_does_what_a_run_with_it_does(made, tmp_path):
    there = run(E.but(selection="random", rounds=1), tmp_path / "random", progress=False).records[0]
    _, other = what_if(made, 1, selection="random", random=0).cohorts
    assert (other.drawn, other.accuracy, other.loss) == (there.drawn, there.test_accuracy, there.test_loss)


@pytest.mark.parametrize("settings", [{"evaluate_every": 4}, {"strategy": "scaffold", "drop_probability": 0.3}])
def test_untested_rounds_dropped_nodes_and_what_nodes_keep(tmp_path, settings):
    run(E.but(**settings), tmp_path / "r", progress=False, checkpoint_every=2)
    found = what_if(tmp_path / "r", 7 if "strategy" in settings else 3, random=1)
    assert found.difference == "" and all(cohort.loss is not None for cohort in found.cohorts)


def test_a_round_that_does_not_come_back_says_so_and_why(copy, capsys):
    rewritten(copy, lambda records: records[1].update(train_loss=0.25))
    schema = json.loads((copy / "schema.json").read_text())
    schema["made_with"]["torch"] = "2.12.0"
    (copy / "schema.json").write_text(json.dumps(schema))
    (copy / "checkpoint.npz").unlink()
    (copy / "checkpoint.previous.npz").write_bytes(b"damaged")
    assert main(["what-if", str(copy), "--round", "3", "--random", "0"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("round 3, NOT reproduced: in round 2 train_loss differs (0.25 and")
    assert "Likely reason: torch was 2.12.0, is 2." in said


def test_the_table_and_json_say_the_same(made, capsys):
    words = ["what-if", str(made), "--round", "7", "--draw", "0, 3,5", "--random", "2"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["cohorts"]] == ["as drawn", "asked for", "random 1", "random 2"]
    assert found["reproduced"] and found["cohorts"][1]["drawn"] == [0, 3, 5]
    for cohort in found["cohorts"]:
        row = next(line for line in shown.splitlines() if line.startswith(cohort["name"]))
        assert f"{cohort['accuracy']:.2%}" in row and f"{cohort['loss']:.4f}" in row


def test_bad_input_is_one_line(made, tmp_path, capsys):
    for words, said in (
        ([str(made), "--round", "8"], "round: 8 is not allowed; it must be between 1 and 7"),
        ([str(made), "--round", "x"], "round: 'x' is not allowed"),
        ([str(made), "--round", "5", "--draw", "1,1"], "draw: '1,1' is not allowed; it must name distinct nodes"),
        ([str(made), "--round", "5", "--draw", "12"], "between 0 and 11"),
        ([str(made), "--round", "5", "--draw", ""], "draw: '' is not allowed"),
        ([str(made), "--round", "5", "--selection", "ort"], "selection: 'ort' is unknown"),
        ([str(tmp_path), "--round", "5"], "holds no run"),
    ):
        assert main(["what-if", *words]) == 2
        found = capsys.readouterr().err
        assert said in found and len(found.strip().splitlines()) == 1
