"""Everything the command line can do, from Python, with the same files left behind."""

import builtins
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedpns_ray
from fedpns_ray import Experiment, InputError, compare, read_study, run, run_study
from fedpns_ray.core.models import MLR
from fedpns_ray.progress.messages import is_live, level_for, stderr_console
from fedpns_ray.registry import PRESETS
from fedpns_ray.strategies import Preset
from fedpns_ray.strategies.pns import ProbabilisticSelection
from fedpns_ray.terminal.command_line import main
from tests import parts

SMALL = {"nodes": 12, "fraction": 0.5, "samples_per_node": 40, "epochs": 1, "rounds": 3}
TEN_LINES = """
from fedpns_ray import run_study

study = {
    "base": {"nodes": 12, "fraction": 0.5, "samples_per_node": 40, "epochs": 1, "rounds": 3},
    "axes": {"strategy": ["fedpns", "fedavg"], "sigma": [0.25, 0.5]},
    "seeds": "1-2",
}
result = run_study(study, "first")
print(result.verdict)
print(open("first/report.html").read(15))
"""
LEFT = {
    ".owner", "commands.txt", "curves.parquet", "curves.png", "report.html", "study.csv", "study.yaml", "table.md",
    "trials",
}  # fmt: skip


def test_ten_lines_in_an_empty_folder(tmp_path):
    done = subprocess.run([sys.executable, "-c", TEN_LINES], cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0 and done.stderr == "", done.stderr  # quiet when piped
    verdict, page = done.stdout.splitlines()
    assert verdict.endswith("(final accuracy, paired by seed).") and page.lower() == "<!doctype html>"
    assert {p.name for p in (tmp_path / "first").iterdir()} == LEFT
    assert len(list((tmp_path / "first" / "trials").iterdir())) == 8


def test_a_comparison_takes_objects_and_shows_itself(tmp_path):
    result = compare([parts.every_fifth, PRESETS["fedavg"]], seeds=[1, 2], out=tmp_path / "c", **SMALL)
    assert result.table["strategy"].tolist() == ["tests.parts:every_fifth", "fedavg"]
    assert result.verdict and result.verdict in result._repr_html_() and "<table" in result._repr_html_()
    assert {p.name for p in (tmp_path / "c").iterdir()} == LEFT


def test_the_same_study_as_on_the_command_line(tmp_path, monkeypatch):
    """Changes, seeds and a selection of trials; what is left behind is the same, to the byte."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(
        "base: {nodes: 12, fraction: 0.5, samples_per_node: 40}\naxes: {sigma: [0.25, 0.5]}\n"
    )
    changes = ["--set", "epochs=1", "--rounds", "3", "--seeds", "1-2"]
    assert main(["study", "s.yaml", *changes, "--only", "sigma=0.5", "--out", "a", "--json"]) == 0
    study = read_study(Path("s.yaml"), {"epochs": "1", "rounds": "3"}, "1-2", {"sigma": 0.5})
    command = f"fedpns study s.yaml {' '.join(changes)} --only sigma=0.5 --out b"
    run_study(study, "b", progress=False, command=command)
    assert {p.name for p in (tmp_path / "b").iterdir()} == LEFT
    assert (tmp_path / "b" / "commands.txt").read_text() == f"{command}\n"
    for name in ("study.yaml", "commands.txt"):
        assert (tmp_path / "a" / name).read_text().replace("--out a", "--out b") == (tmp_path / "b" / name).read_text()
    weights = [sorted((tmp_path / out / "trials").glob("*/weights.safetensors")) for out in "ab"]
    assert len(weights[0]) == 2 and [p.read_bytes() for p in weights[0]] == [p.read_bytes() for p in weights[1]]
    with pytest.raises(InputError, match="resume: c holds no study to resume"):
        run_study(study, "c", resume=True)


def test_a_report_is_what_the_command_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(Experiment(**SMALL), "r")
    written = fedpns_ray.report("r", out="a.html", figures="f")
    assert (written.path, written.runs, written.notes) == (Path("a.html"), 1, []) and os.fspath(written) == "a.html"
    assert main(["report", "r", "--out", "b.html", "--figures", "f"]) == 0
    assert f"figures (PDF and PNG): {', '.join(written.figures)}, written to f" in capsys.readouterr().out
    assert "fedpns report r --out a.html --figures f" in Path("a.html").read_text()
    assert "fedpns report r --out b.html --figures f" in Path("b.html").read_text()


ONE_RUN = """
from fedpns_ray import Experiment, run

run(Experiment(nodes=12, fraction=0.5, samples_per_node=40, epochs=1, rounds=300), progress={progress})
"""


@pytest.mark.parametrize("progress", [True, False])
def test_a_terminal_sees_a_bar(progress):
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    code = ONE_RUN.format(progress=progress)
    with subprocess.Popen([sys.executable, "-c", code], stdout=child, stderr=child, env=environment) as process:
        os.close(child)
        screen = b""
        while True:
            try:
                screen += os.read(parent, 65536)
            except OSError:  # nothing writes to it any more
                break
        os.close(parent)
    assert process.returncode == 0, screen
    assert bool(re.search(rb"fedpns, seed 1 .*round 300/300.*accuracy .*\d+\.\d\d%", screen)) == progress
    assert progress or screen == b""


def test_a_pipe_sees_nothing():
    code = ONE_RUN.format(progress=True)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_notebook_counts_as_a_terminal(monkeypatch):
    """With the kernel's shell, as rich knows it. A live display there needs ipywidgets, which need not be installed."""
    shell = type("ZMQInteractiveShell", (), {})()
    assert level_for(stderr_console(), progress=True) == logging.WARNING
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    console = stderr_console()
    assert console.is_jupyter and level_for(console, progress=True) == logging.INFO
    monkeypatch.setattr("fedpns_ray.progress.messages.find_spec", lambda name: None)
    assert not is_live(console, logging.INFO)
    monkeypatch.setattr("fedpns_ray.progress.messages.find_spec", lambda name: object())
    assert is_live(console, logging.INFO) and not is_live(console, logging.WARNING)


@pytest.mark.parametrize("progress", [True, False])
def test_warnings_are_printed_once_unless_all_is_silent(tmp_path, capsys, progress):
    e, package = Experiment(**SMALL), logging.getLogger("fedpns_ray")
    before = list(package.handlers), package.level
    run(e, tmp_path / "r")
    (tmp_path / "r" / "weights.safetensors").unlink()
    run(e, tmp_path / "r", progress=progress)
    assert capsys.readouterr().err.count("is damaged: ") == progress
    assert (list(package.handlers), package.level) == before


def test_a_progress_object_is_used_as_it_is():
    class Heard(list):
        def __enter__(self):
            self.append("enter")

        def __exit__(self, *error):
            self.append("exit")

        def begin(self, experiment):
            self.append(experiment)

        def advance(self, record):
            self.append(record["round"])

    heard, seen = Heard(), []
    run(Experiment(**SMALL), progress=heard, on_round=seen.append)
    assert heard == ["enter", Experiment(**SMALL), 1, 2, 3, "exit"] and [record["round"] for record in seen] == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: run(Experiment(), on_rounds=print), "on_rounds: is unknown; did you mean on_round?"),
        (
            lambda: run(Experiment(), say=print),
            "say: is unknown; choose from on_round, stop, checkpoint_every, timeline",
        ),
        (
            lambda: run(Experiment(), checkpoint_every=0),
            "checkpoint_every: 0 is not allowed; it must be a whole number",
        ),
        (lambda: run_study({}, "nowhere", verbos=True), "verbos: is unknown; did you mean verbose?"),
    ],
)
def test_mistaken_options_are_one_line(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_objects_stand_where_names_do():
    by_name = Experiment(strategy="fedavg", selection="pns", model="tests.test_python_door:net", **SMALL)
    by_object = Experiment(strategy=PRESETS["fedavg"], selection=ProbabilisticSelection, model=net, **SMALL)
    assert by_object == by_name
    assert Experiment(strategy=parts.Stride).strategy == "tests.parts:Stride"
    assert Experiment(strategy=parts.every_fifth).strategy == "tests.parts:every_fifth"
    assert run(by_object).summary["weights_sha256"] == run(by_name).summary["weights_sha256"]


def net(shape, classes):
    return MLR(shape, classes)


@pytest.mark.parametrize("field", ["strategy", "selection", "model"])
def test_what_lives_only_in_a_notebook_is_refused_with_the_remedy(field):
    class Local(parts.Stride):
        name = "local"

    Local.__module__, Local.__qualname__ = "__main__", "Local"
    with pytest.raises(InputError, match=f"{field}: Local is not allowed; workers cannot import .* such as mine.py"):
        Experiment(**{field: Local})
    with pytest.raises(InputError, match="strategy: Preset is not allowed"):
        Experiment(strategy=Preset("made on the spot", selection=parts.Stride))


def test_the_public_names_and_nothing_else():
    assert dir(fedpns_ray) == sorted(fedpns_ray.__all__)
    for name in fedpns_ray.__all__:
        assert getattr(fedpns_ray, name).__name__ == name
    assert (Path(fedpns_ray.__file__).parent / "py.typed").exists()


def test_a_result_shows_itself():
    shown = run(Experiment(strategy="fedavg", **SMALL))._repr_html_()
    assert "fedavg, seed 1: final accuracy" in shown and "<table" in shown


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ({"bas": {}}, "bas: unknown key; did you mean base?"),
        ({"base": {"sigma": 7}}, "sigma: 7 is not allowed"),
        ({"axes": {"sigma": 3}}, "axes.sigma: 3 is not allowed"),
    ],
)
def test_a_mistake_in_a_study_is_one_line_without_a_file(study, message):
    with pytest.raises(InputError) as caught:
        fedpns_ray.run_study(study, "nowhere")
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
