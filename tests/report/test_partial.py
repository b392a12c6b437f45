"""A study that is not complete says so wherever it is shown; what was left out on purpose is not missing."""

import shutil

import pytest

from fedpns_ray import run
from fedpns_ray.records.storage import Storage
from fedpns_ray.reporting import curves
from fedpns_ray.reporting.collecting import gather
from fedpns_ray.reporting.figures import write_figures
from fedpns_ray.reporting.study_result import concluded
from fedpns_ray.study.engine import StudyOutcome
from fedpns_ray.study.study_file import read_study
from fedpns_ray.terminal.command_line import main
from fedpns_ray.terminal.study import _print_table

FILE = """
title: Two models
base: {nodes: 10, fraction: 0.4, samples_per_node: 40, epochs: 1, rounds: 3}
axes: {strategy: [fedpns, fedavg], sigma: [0.2, 0.4]}
seeds: 1-2
targets: [0.1]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """All 8 trials."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "study.yaml").write_text(FILE)
    for trial in read_study(folder / "study.yaml").trials:
        run(trial.experiment, folder / "trials" / trial.name, progress=False)
    return folder


@pytest.fixture
def study(made, tmp_path):
    """A folder with some trials, concluded; `stopped` or with a selection, as a command would leave it."""

    def make(keep, stopped=False, command="fedpns study study.yaml", **selection):
        (tmp_path / "study.yaml").write_text(FILE)
        described = read_study(tmp_path / "study.yaml", **selection)
        for trial in described.whole:
            if keep(trial.experiment):
                shutil.copytree(made / "trials" / trial.name, tmp_path / "trials" / trial.name)
        (tmp_path / "commands.txt").write_text(command + "\n")
        return concluded(described, Storage(tmp_path), StudyOutcome(described.trials, stopped=stopped))

    return make


def titles(monkeypatch):
    """The title of every picture of a study that is drawn."""
    found, draw = [], curves.study_figure

    def noted(results):
        figure = draw(results)
        found.append(figure.get_suptitle())
        return figure

    monkeypatch.setattr(curves, "study_figure", noted)
    return found


@pytest.mark.parametrize("stopped", [False, True])
def test_a_partial_study_says_so_everywhere(study, stopped, monkeypatch, tmp_path, capsys):
    drawn = titles(monkeypatch)
    label = "partial: 6 of 8 trials finished"
    found = study(lambda e: e.seed == 1 or e.strategy == "fedavg", stopped)
    assert (tmp_path / "table.md").read_text().startswith(f"**{label}**\n\n| strategy |")
    assert drawn == [f"Two models\n{label}"] and (tmp_path / "curves.png").stat().st_size > 1000
    page = (tmp_path / "report.html").read_text()
    assert f"<title>Two models - {label}</title>" in page and f'"standing":"{label}"' in page
    _print_table(found.table, found.results)
    assert label in capsys.readouterr().out
    gathered = gather([tmp_path])
    assert gathered.label == label and "2 of the study's 8 trials have not run yet" in " ".join(gathered.notes)
    captions = []
    monkeypatch.setattr("matplotlib.figure.Figure.supxlabel", lambda figure, text, **_: captions.append(text))
    names = {path.stem for path in write_figures(gathered, tmp_path / "figures")}
    assert captions == [label] * (len(names) - 2) != []  # and the titles of both `curves`


def test_an_unfinished_run_counts_as_such(study, tmp_path):
    study(lambda e: True)
    folder = next((tmp_path / "trials").iterdir())
    (folder / "summary.json").unlink()
    assert gather([tmp_path]).label == "partial: 7 of 8 trials finished"
    assert main(["report", str(folder), str(tmp_path / "trials"), "--out", str(tmp_path / "p.html")]) == 0
    assert '"standing":"partial: 7 of 8 runs finished"' in (tmp_path / "p.html").read_text()


def test_a_complete_study_has_no_label(study, tmp_path):
    found = study(lambda e: True)
    assert found.results.label == gather([tmp_path]).label == ""
    assert (tmp_path / "table.md").read_text().startswith("| strategy |")
    assert '"standing":""' in (tmp_path / "report.html").read_text()


def test_a_selection_is_named_and_not_missed(study, tmp_path, capsys):
    command = "fedpns study study.yaml --only strategy=fedpns --only=sigma=0.2,0.4 --seeds 1"
    only = {"strategy": ["fedpns"], "sigma": ["0.2", "0.4"]}
    found = study(lambda e: e.strategy == "fedpns" and e.seed == 1, command=command, only=only, seeds="1")
    label = "selected: strategy=fedpns, sigma=0.2,0.4, seeds=1"
    gathered = gather([tmp_path])
    assert found.results.label == gathered.label == label and gathered.notes == [] and gathered.expected == 2
    assert (tmp_path / "table.md").read_text().startswith(f"**{label}**")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "p.html")]) == 0
    assert "have not run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "selection", "label"),
    [
        ("--rounds 2", {}, ""),
        ("--set epochs=2 --rounds=2 --only sigma=0.2", {"sigma": "0.2"}, "selected: sigma=0.2"),
    ],
)
def test_changed_settings_are_what_was_asked_for(tmp_path, flags, selection, label):
    """The trials of the file, with its own number of rounds, were never asked for."""
    changes = {"rounds": "2"} | ({"epochs": "2"} if "epochs" in flags else {})
    (tmp_path / "study.yaml").write_text(FILE)
    (tmp_path / "commands.txt").write_text(f"fedpns study study.yaml {flags}\n" * 2)
    described = read_study(tmp_path / "study.yaml", changes, only=selection)
    for trial in described.trials:
        run(trial.experiment, tmp_path / "trials" / trial.name, progress=False)
    found = concluded(described, Storage(tmp_path), StudyOutcome(described.trials))
    gathered = gather([tmp_path])
    assert found.results.label == gathered.label == label
    assert gathered.notes == [] and gathered.expected == len(described.trials) == (4 if selection else 8)


def test_a_selection_may_be_partial_too(study, tmp_path):
    command = "fedpns study study.yaml --only strategy=fedpns"
    found = study(lambda e: e.strategy == "fedpns" and e.seed == 1, command=command, only={"strategy": "fedpns"})
    label = "partial: 2 of 4 trials finished; selected: strategy=fedpns"
    assert found.results.label == gather([tmp_path]).label == label


def test_a_selection_beside_other_finished_trials_gives_their_number(study, tmp_path):
    command = "fedpns study study.yaml --only strategy=fedpns"
    found = study(lambda e: e.strategy == "fedpns" or e.seed == 1, command=command, only={"strategy": "fedpns"})
    assert found.results.label == gather([tmp_path]).label == "selected: 6 of the study's 8 trials"


@pytest.mark.parametrize(
    "commands",
    [
        "fedpns study 'unbalanced --only strategy=fedpns",
        "",
        "fedpns study s.yaml --only\nfedpns study s.yaml",
        "\0\n\n",
    ],
)
def test_commands_that_say_nothing_select_nothing(study, tmp_path, commands):
    study(lambda e: e.seed == 1, command=commands)
    assert gather([tmp_path]).label == "partial: 4 of 8 trials finished"
