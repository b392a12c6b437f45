"""Folders into runs: each experiment once, whatever the folders are; and what the page holds, without a browser."""

import json
import shlex
import shutil

import pytest

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.records.file_names import COMMANDS
from fedpns_ray.records.storage import Storage
from fedpns_ray.reporting import selection_map
from fedpns_ray.reporting.collecting import gather
from fedpns_ray.reporting.page import embedded, page_data, run_flags
from fedpns_ray.reporting.report_card import card_markdown, report_card
from fedpns_ray.reporting.selection_map import chosen
from fedpns_ray.terminal.command_line import build_parser, main
from fedpns_ray.terminal.setting_flags import settings as settings_of

SMALL = {"nodes": 10, "samples_per_node": 50, "epochs": 1, "rounds": 3}


def test_a_study_a_folder_of_runs_and_single_runs_are_the_same_runs(study_folder):
    whole = gather([study_folder])
    assert whole.study.axes == ["sigma", "strategy"] and len(whole.runs) == 12 and whole.notes == []
    loose = gather([study_folder / "trials"])
    single = gather(sorted((study_folder / "trials").iterdir()))
    for other in (loose, single):
        assert {run.name for run in other.runs} == {run.name for run in whole.runs}
        assert set(other.study.axes) == {"sigma", "strategy"}
        assert len(page_data(other, "")["pairs"]["rows"]) == len(page_data(whole, "")["pairs"]["rows"]) == 2


def test_an_experiment_that_stands_twice_is_shown_once_by_its_longest_run(tmp_path):
    run(Experiment(**SMALL), tmp_path / "short")
    run(Experiment(**SMALL | {"rounds": 5}), tmp_path / "long")
    found = gather([tmp_path / "short", tmp_path / "long"])
    assert [len(one.records) for one in found.runs] == [5] and "another folder also holds" in found.notes[0]


def test_a_study_file_that_cannot_be_read_here_does_not_hide_its_runs(study_folder, tmp_path):
    shutil.copytree(study_folder, tmp_path / "study")
    (tmp_path / "study" / "study.yaml").write_text("axes: {selection: ['absent.module:Mine']}\n")
    found = gather([tmp_path / "study"])
    assert len(found.runs) == 12 and set(found.study.axes) == {"sigma", "strategy"}


def test_a_broken_run_that_was_named_is_an_error(study_folder, tmp_path):
    trial = tmp_path / "run"
    shutil.copytree(next((study_folder / "trials").iterdir()), trial)
    (trial / "summary.json").write_text("{")
    with pytest.raises(InputError, match="summary.json: is damaged; no summary can be read"):
        gather([trial])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"strategy": "bn2", "dataset": "mnist", "candidates": 30},
        {"strategy": "fedavg", "selection": "half", "dataset": "cifar10", "partition": "sigma-rho"},
        {"alpha": 3, "beta": 0.5, "v": 8, "drop_probability": 0.1, "seed": 7},
    ],
)
def test_the_command_that_is_given_is_the_experiment(settings):
    experiment = Experiment(**settings)
    words = shlex.split(run_flags(experiment))
    assert words[:2] == ["fedpns", "run"]
    assert Experiment(**settings_of(build_parser().parse_args(words[1:]))) == experiment


def test_nodes_are_shown_of_one_seed_of_every_setting_first(study_folder, monkeypatch):
    found = gather([study_folder])
    groups = {}
    for one in found.runs:
        groups.setdefault((one.experiment.sigma, one.experiment.strategy), []).append(one)
    assert len(chosen(groups.values())[0]) == 12
    monkeypatch.setattr(selection_map, "SELECTION_BYTES", 5 * 2 * 8 * 12)  # five runs
    shown, note = chosen(groups.values())
    assert [k for k, _ in shown] == [0, 0, 1, 2, 3] and "5 of 12 runs" in note


def test_no_name_breaks_out_of_the_data():
    text = embedded({"name": "</script><script>alert(1)</script><!--", "and": "\u2028&"})
    assert "<" not in text and ">" not in text and json.loads(text)["name"].startswith("</script>")


def test_a_study_in_a_bucket_is_the_same_study(study_folder, tmp_path, s3, capsys):
    place = s3 % tmp_path.name
    with pytest.raises(InputError, match=r"^s3://studies/.* holds no run, no study and no folder of runs"):
        gather([place])
    storage = Storage(place)
    storage.write("study.yaml", (study_folder / "study.yaml").read_bytes())
    storage.add_line(COMMANDS, "fedpns study small.yaml --seeds 1-3")
    for trial in (study_folder / "trials").iterdir():
        storage.push(f"trials/{trial.name}", trial)
    here, there = gather([study_folder]), gather([place])
    assert there.study.name == tmp_path.name and there.sources[0].place.startswith("s3://studies/")
    data = page_data(there, "")
    assert data["settings"] == page_data(here, "")["settings"] and data["runs"] == page_data(here, "")["runs"]
    assert data["reproduce"][0]["command"] == "fedpns study small.yaml --seeds 1-3"
    assert main(["watch", place, "--once"]) == 0
    assert "12 finished, 0 unfinished, 0 to come" in capsys.readouterr().out
    one = gather([place.replace("?", f"/trials/{trial.name}?")])
    assert one.runs[0].records == gather([trial]).runs[0].records


def test_a_hundred_runs_are_small(study_folder, tmp_path):
    """Real records under other seeds; how long it takes is for benchmarks/report.py."""
    from benchmarks.report import multiply

    multiply(study_folder, tmp_path / "many", runs=100, rounds=200)
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "many"), "--out", str(out)]) == 0
    assert out.stat().st_size < 10e6


def test_more_lines_than_colours_are_dashed_and_have_no_bands(tmp_path):
    for k in range(9):
        run(Experiment(**SMALL | {"rounds": 1, "alpha": 1 + k}), tmp_path / "runs" / str(k))
    data = page_data(gather([tmp_path / "runs"]), "")
    looks = [(line["colour"], line["dash"]) for line in data["lines"]]
    assert len(set(looks)) == 9 and len({colour for colour, _ in looks}) == 8 and not data["bands"]


def test_the_selection_report_card_is_in_the_table_and_on_the_page(study_folder):
    trials = gather([study_folder]).results.trials
    assert (trials["coverage"] > 0).all() and trials["draws_jain"].between(0, 1).all()
    found = report_card(trials, ["sigma", "strategy"])
    assert found.header[:4] == ["sigma", "strategy", "Jain index of draws", "Gini index of draws"]
    assert len(found.rows) == 4 and " ± " in found.rows[0][2]
    assert page_data(gather([study_folder]), "")["card"]["rows"] == found.rows
    decimals = [[len(number.partition(".")[2]) for number in row[2].split(" ± ")] for row in found.rows]
    assert all(half == mean for mean, half in decimals)  # an interval is no finer than its mean
    assert card_markdown(found, ["sigma"]).count("\n| ") == 6
