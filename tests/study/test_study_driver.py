"""`fedpns study` as a command with a private Ray: interrupted, killed, resumed; parts that fail; other loggers."""

import os
import re
import signal

import pandas as pd
import pytest

from tests.bench import Bench

EIGHT = """
base: {nodes: 10, samples_per_node: 400, epochs: 8, rounds: 90, fraction: 0.3}
axes: {strategy: [fedpns, fedavg], sigma: [0.2, 0.5]}
seeds: 1-2
"""


def rows(folder):
    return pd.read_csv(folder / "study.csv").drop(columns=["seconds", "selector_seconds"])


def test_interrupted_killed_and_resumed(tmp_path):
    (tmp_path / "s.yaml").write_text(EIGHT)
    bench = Bench(tmp_path, "study", "s.yaml", "--out", "o")

    process = bench.start()
    bench.wait_for_lines(process, 60)
    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches every process of the terminal
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "the same command resumes" in err and "Traceback" not in err, err
    assert not bench.left_behind()
    assert set(rows(tmp_path / "o")["status"]) <= {"done", "unfinished"} and bench.lines() < 8 * 90

    process = bench.start("--resume")
    bench.wait_for_lines(process, bench.lines() + 120)
    process.kill()
    process.communicate()
    assert bench.lines() < 8 * 90 and not bench.left_behind(agents=False)

    process = bench.start()
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and "final accuracy" in out, err
    (tmp_path / "fresh.yaml").write_text(EIGHT)
    screen, code = Bench(tmp_path, "study", "fresh.yaml", "--out", "u").run_in_terminal()
    assert code == 0, screen
    assert re.search(r"\d done, [24] running, 0 failed, \d waiting; \d+:\d\d elapsed, \d+:\d\d left", screen), screen
    assert re.search(r"best so far \d+\.\d\d%: fed", screen), screen
    pd.testing.assert_frame_equal(rows(tmp_path / "o"), rows(tmp_path / "u"))
    assert len(rows(tmp_path / "u")) == 8 and set(rows(tmp_path / "u")["status"]) == {"done"}
    given = ["fedpns study s.yaml --out o", "fedpns study s.yaml --out o --resume"]
    assert (tmp_path / "o" / "commands.txt").read_text().splitlines() == given
    page = (tmp_path / "o" / "report.html").read_text()
    assert given[0] in page and "not finished" not in page


FAILING = """
from pathlib import Path

from fedpns_ray.strategies.fedavg import RandomSelection


class Failing(RandomSelection):
    name = "failing"

    def learn(self, updates, outcome):
        if sum(self._nodes.iid) == 5:
            with Path("{tries}").open("a") as file:
                file.write("x")
            raise ArithmeticError("a node divided by zero")
"""


def test_a_failing_trial_stops_no_other_and_loggers_hear_of_all(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("wandb")
    (tmp_path / "failing_part.py").write_text(FAILING.format(tries=tmp_path / "tries"))
    (tmp_path / "s.yaml").write_text(
        "base: {nodes: 10, samples_per_node: 50, epochs: 1, rounds: 12, fraction: 0.3, strategy: fedavg,"
        " selection: 'failing_part:Failing'}\naxes: {sigma: [0.2, 0.5]}\n"
    )
    uri = (tmp_path / "mlruns").as_uri()
    bench = Bench(tmp_path, "study", "s.yaml", "--out", "o", "--mlflow", uri, "--wandb", "fedpns")
    bench.environment["WANDB_MODE"] = "offline"
    del bench.environment["MLFLOW_ALLOW_FILE_STORE"]  # for our own look at the folder; the command needs none
    process = bench.start()
    _, err = process.communicate(timeout=600)
    assert process.returncode == 1 and "Traceback" not in err, err
    assert "ArithmeticError: a node divided by zero" in next(line for line in err.splitlines() if "failed: " in line)
    trials = rows(tmp_path / "o").set_index("sigma")
    assert trials["status"].to_dict() == {0.2: "done", 0.5: "failed"}
    assert "a node divided by zero" in trials.loc[0.5, "error"]
    assert (tmp_path / "tries").read_text() == "xxx"  # tried, and tried again twice

    client = mlflow.tracking.MlflowClient(uri)
    (experiment,) = (e for e in client.search_experiments() if e.name == "s")
    runs = client.search_runs([experiment.experiment_id])
    (done,) = (run for run in runs if run.info.status == "FINISHED")
    assert done.data.metrics["round"] == 12 and done.data.params["experiment/sigma"] == "0.2"
    assert list((tmp_path / "o").rglob("*.wandb"))


def test_mistakes_are_one_line_and_nothing_is_written(tmp_path):
    (tmp_path / "s.yaml").write_text("axes:\n  sigma: [2]\n")
    for arguments, message in (
        (["s.yaml"], "fedpns: s.yaml: line 2: sigma: 2 is not allowed; it must be less than or equal to 1\n"),
        (["no.yaml"], "fedpns: no.yaml: cannot be read (No such file or directory)\n"),
    ):
        process = Bench(tmp_path, "study", *arguments).start()
        out, err = process.communicate(timeout=300)
        assert (process.returncode, out, err) == (2, "", message)
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]
