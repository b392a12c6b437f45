"""The command line, as a person or a script meets it."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedpns_ray import Experiment
from fedpns_ray.study.seeds import parse_seeds
from fedpns_ray.terminal.command_line import main

SMALL = ["--nodes", "20", "--samples-per-node", "50", "--epochs", "1"]
FEDPNS = [sys.executable, "-m", "fedpns_ray"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run --sigma 1.5", "sigma: '1.5' is not allowed; it must be less than or equal to 1"),
        ("run --dataset mnist --rho 0", "rho: '0' is not allowed; it must be greater than or equal to 1"),
        ("run --dataset mnist --rho 11", "rho: 11 is not allowed; it must be at most 10, the number of labels"),
        ("run --beta 2", "beta: '2' is not allowed; it must be less than or equal to 1"),
        ("run --alpha -1", "alpha: '-1' is not allowed; it must be greater than 0"),
        ("run --fraction 0.001", "fraction: 0.001 draws 0 of 50 nodes"),
        ("run --strategy nothing", "strategy: 'nothing' is unknown; choose from fedavg"),
        ("run --dataset nothing", "dataset: 'nothing' is unknown; choose from synthetic, mnist"),
        ("run --dataset mnist --samples-per-node 7000", "samples_per_node: a node would hold 7000 samples of label"),
        ("run --sigm 0.2", "unrecognized arguments: --sigm; did you mean --sigma?; see fedpns run --help"),
        ("run --no-such-thing=1", "unrecognized arguments: --no-such-thing=1; see fedpns run --help"),
        ("data show --lr 0.1", "unrecognized arguments: --lr; see fedpns data show --help"),
        ("data shw", "argument ACTION: invalid choice: 'shw' (choose from fetch, verify, show); did you mean show?"),
        ("run nothing.yaml", "nothing.yaml: cannot be read"),
        ("run --model vgg", "model: 'vgg' is unknown; choose from mlr, cnn-m, cnn-c"),
        ("run --model cnn-m", "model: cnn-m cannot be trained on inputs of shape (60,)"),
        ("compare --strategies fedavg --alpha 3", "alpha: '3' is not allowed; it is only used with selection pns"),
        ("compare --strategies ,", "strategies: none is named"),
        ("compare --seeds 5-1", "seeds: '5-1' is not allowed; it must be like 1-5 or 1,3,7"),
        ("data fetch nothing", "dataset: 'nothing' is unknown; choose from mnist"),
        ("data show --out picture.txt", "out: picture.txt is not allowed; it must end in .png, .pdf, .svg"),
        ("run --actors some", "actors: 'some' is not allowed; it must be a whole number"),
        ("run --actors 0", "actors: 0 is not allowed; it must be at least 1"),
        ("run --actors 2 --nodes-per-actor 5", "nodes_per_actor: 5 is not allowed together with actors"),
        ("run --in-process --actors 2", "actors: 2 is not allowed together with --in-process"),
        ("run --address 127.0.0.1:1", "address: 127.0.0.1:1 does not answer"),
        ("run --address ray://somewhere:10001", "address: ray://somewhere:10001 is not allowed; it must be auto or"),
        ("run --checkpoint-every 0", "checkpoint_every: '0' is not allowed; it must be a whole number above 0"),
        ("run --set alpha", "set: 'alpha' is not allowed; it must be like key=value"),
        ("compare --nodes 15 --strategies fedpns,bn2", "candidates: 20 is not allowed; it must be between 3"),
        ("nothing", "argument COMMAND: invalid choice: 'nothing' (choose from run, compare, study, report, watch,"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2_and_nothing_written(arguments, message, capsys, tmp_path, mnist):
    assert main(arguments.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"fedpns: {message}"), printed.err
    assert printed.err.count("\n") == 1 and printed.out == ""
    assert not list(tmp_path.iterdir())


def test_run_prints_a_result_and_goes_on_when_asked_again(capsys, tmp_path):
    assert main(["run", *SMALL, "--in-process", "--rounds", "3", "--out", "r"]) == 0
    first = capsys.readouterr()
    assert "fedpns: final accuracy" in first.out and first.err == ""  # quiet when piped
    assert main(["run", *SMALL, "--in-process", "--rounds", "3", "--out", "r"]) == 0
    assert capsys.readouterr().out == first.out
    assert main(["run", *SMALL, "--in-process", "--rounds", "3", "--out", "r", "--seed", "2"]) == 2
    assert "holds a different experiment (seed is 1 there, 2 here)" in capsys.readouterr().err


def test_json_is_the_summary_and_nothing_else(capsys, tmp_path):
    (tmp_path / "e.yaml").write_text("strategy: fedavg\nnodes: 20\nsamples_per_node: 50\nepochs: 1\nrounds: 9\n")
    assert main(["run", "e.yaml", "--in-process", "--rounds", "2", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["rounds"] == 2 and summary["strategy"] == "fedavg" and len(summary["weights_sha256"]) == 64
    assert (tmp_path / summary["out"] / "summary.json").exists() and summary["out"].startswith("runs/synthetic-fedavg-")


def test_compare_is_a_study(capsys, tmp_path):
    """Paired, on Ray, with the tables and the page of a study, and resumed by `fedpns study` like any other."""
    flags = ["--strategies", "fedpns,fedavg", "--alpha", "3", "--seeds", "1-2", "--rounds", "3", "--out", "c"]
    assert main(["compare", *SMALL, *flags]) == 0
    printed = capsys.readouterr()
    assert re.search(r"Ray: \d+ workers? on \d+ cores?\n", printed.err), printed.err
    assert re.search(r"│ fedpns +│ +2 │ +\d+\.\d\d ± \d+\.\d\d ", printed.out) and "fedavg" in printed.out
    winner = re.search(
        r"(fedpns|fedavg) beats (fedavg|fedpns) by \d+\.\d\d ± \d+\.\d\d points .* over 2 seeds", printed.out
    )
    assert winner and "open c/report.html" in printed.out, printed.out
    left = {p.name for p in (tmp_path / "c").iterdir()}
    assert left == {
        ".owner", "commands.txt", "curves.parquet", "curves.png", "report.html", "study.csv", "study.yaml", "table.md",
        "trials",
    }  # fmt: skip
    configs = [p.read_text() for p in (tmp_path / "c" / "trials").glob("*/config.yaml")]
    assert len(configs) == 4 and sum("alpha: 3.0" in text for text in configs) == 2
    before = (tmp_path / "c" / "study.csv").read_bytes()
    assert main(["study", "c/study.yaml", "--out", "c"]) == 0  # nothing is missing
    assert (tmp_path / "c" / "study.csv").read_bytes() == before
    capsys.readouterr()
    assert main(["compare", *SMALL, *flags, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in rows] == ["fedpns", "fedavg"] and rows[0]["seeds"] == 2


def test_compare_leaves_foreign_folders_alone_and_reads_a_runs_config(capsys, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "curves.png").write_text("mine")
    assert main(["compare", *SMALL, "--rounds", "1", "--out", "thesis"]) == 2
    assert "is not empty and holds no study" in capsys.readouterr().err
    assert (tmp_path / "thesis" / "curves.png").read_text() == "mine"
    assert main(["run", *SMALL, "--in-process", "--rounds", "2", "--seed", "7", "--out", "r"]) == 0
    assert main(["compare", "r/config.yaml", "--strategies", "fedpns,fedavg", "--out", "c", "--json"]) == 0
    capsys.readouterr()
    trials = {Experiment.from_yaml(p / "config.yaml").strategy: p for p in (tmp_path / "c" / "trials").iterdir()}
    digests = {name: json.loads((folder / "summary.json").read_text())["weights_sha256"]
               for name, folder in {"r": tmp_path / "r", **trials}.items()}  # fmt: skip
    assert digests["r"] == digests["fedpns"] != digests["fedavg"]


def test_a_part_and_a_model_of_your_own_beside_you(tmp_path):
    """Through the console script, whose folder is not on Python's path by itself."""
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "from fedpns_ray.strategies import Selection\n"
        "class Every(Selection):\n"
        "    name = 'every'\n"
        "    stride: int = 1\n"
        "    def begin(self, nodes): self._n = nodes\n"
        "    _n: object\n"
        "    def draw(self, rng, probe): return range(0, self._n.count, self.stride)\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self, shape, classes): super().__init__(shape[0], classes)\n"
    )
    script = Path(sys.executable).with_name("fedpns")
    done = subprocess.run(
        [script, "run", *SMALL, "--in-process", "--rounds", "2", "--selection", "mine:Every", "--set", "stride=5",
         "--model", "mine:Net", "--strategy", "fedavg", "--out", "r", "--json"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first = json.loads((tmp_path / "r" / "rounds.jsonl").read_text().splitlines()[0])
    assert first["drawn"] == [0, 5, 10, 15]


def test_data_show_draws_a_population(capsys, tmp_path):
    assert main(["data", "show", "--nodes", "5", "--sigma", "0.4", "--out", "p.png"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"1 │ yes │", out) and re.search(r"2 │ +│", out) and "sha256" in out and "q_dif" in out
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_data_verify(capsys, mnist_files):
    assert main(["data", "verify", "mnist"]) == 0
    assert "mnist: as published" in capsys.readouterr().out


def test_strategies_and_doctor(capsys):
    assert main(["strategies"]) == 0
    listed = capsys.readouterr().out
    for word in ("fedavg", "optimal-aggregation", "fedpns", "bn2", "alpha = 2.0", "beta = 0.7", "candidates = 20"):
        assert word in listed
    assert main(["doctor"]) == 0
    found = capsys.readouterr().out
    assert "2.60.0" in found and "cores" in found and "data folder" in found


def test_seeds():
    assert parse_seeds("1-3,7") == [1, 2, 3, 7] and parse_seeds("4") == [4]


def test_a_terminal_sees_progress_and_ctrl_c_leaves_a_run_to_continue(tmp_path):
    """In a real pseudo-terminal: a bar with round, accuracy and time left; Ctrl-C; the same command resumes."""
    command = [*FEDPNS, "run", *SMALL, "--in-process", "--rounds", "1500", "--out", "r"]
    parent, child = pty.openpty()
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    )
    os.close(child)
    screen = b""
    patience = time.monotonic() + 180
    stopped = False
    while time.monotonic() < patience:
        if select.select([parent], [], [], 0.2)[0]:
            try:
                screen += os.read(parent, 65536)
            except OSError:
                break
        if not stopped and re.search(rb"round \d\d+/1500.*accuracy .*\d+\.\d\d%", screen):
            process.send_signal(signal.SIGINT)
            stopped = True
    os.close(parent)
    assert process.wait(timeout=60) == 130
    assert b"the same command resumes" in screen
    done = len((tmp_path / "r" / "rounds.jsonl").read_text().splitlines())
    assert 1 <= done < 1500 and (tmp_path / "r" / "checkpoint.npz").exists()
    again = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(again.stdout)["rounds"] == 1500
