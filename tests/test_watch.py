"""`fedpns watch` beside a real run: it shows what is recorded so far, and ends when the run ends."""

import fcntl
import signal
import subprocess
import sys
import time

import pytest

from fedpns_ray import Experiment, Interrupted, run
from fedpns_ray.records.claims import new_claim, write_claim
from fedpns_ray.records.storage import Storage
from fedpns_ray.terminal.command_line import main
from fedpns_ray.terminal.watch import spark

SMALL = {"nodes": 10, "samples_per_node": 50, "epochs": 1}
FEDPNS = [sys.executable, "-m", "fedpns_ray"]


def test_a_spark_is_the_shape_of_its_values():
    assert spark([0, 1], 10) == "▁█" and spark([0.0, None, float("nan"), 7.0], 10) == "▁█"
    assert spark(range(8), 8) == "▁▂▃▄▅▆▇█" and spark(range(800), 8) == "▁▂▃▄▅▆▇█"
    assert spark([], 5) == "" and spark([3.0], 5) == "▁" and spark([5.0], 1, 0, 5) == "█"


def test_a_finished_run_is_shown_and_it_ends(tmp_path, capsys):
    result = run(Experiment(rounds=4, **SMALL), tmp_path / "run")
    assert main(["watch", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "finished" in shown and f"{result.records[-1]['test_accuracy']:.2%}" in shown
    assert f"drawn in round 4: {' '.join(map(str, result.records[-1]['drawn']))}" in shown


def test_a_study_under_way(tmp_path, capsys):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "study.yaml").write_text(
        "base: {nodes: 10, samples_per_node: 50, epochs: 1, rounds: 3}\n"
        "axes: {strategy: [fedpns, fedavg]}\n"
        "seeds: 1-2\n"
    )
    from fedpns_ray.study.study_file import read_study

    for trial in read_study(folder / "study.yaml").trials[:3]:
        run(trial.experiment, folder / "trials" / trial.name)
    (folder / "trials" / trial.name / "summary.json").unlink()
    assert main(["watch", str(folder), "--once", "--html", str(tmp_path / "live.html")]) == 0
    assert "2 finished, 1 unfinished, 1 to come" in capsys.readouterr().out  # without an owner, nobody knows
    write_claim(Storage(folder), new_claim())
    assert main(["watch", str(folder), "--once"]) == 0
    assert "1 unfinished" in capsys.readouterr().out  # this process is alive
    write_claim(Storage(folder), new_claim().model_copy(update={"process": 2**22 + 1}))
    assert main(["watch", str(folder), "--once"]) == 0
    assert "2 finished, 1 stopped, 1 to come; no process is working on it" in capsys.readouterr().out
    assert "1 of 3 runs is not finished" in (tmp_path / "live.html").read_text()


def test_it_follows_a_running_run_to_its_end_and_rewrites_the_page(tmp_path):
    """The run waits after each of its first rounds until the page has been rewritten."""
    out, page = tmp_path / "run", tmp_path / "live.html"
    watching, pages = [], [0]

    def wait_for_a_new_page(record):
        if not watching:
            command = [*FEDPNS, "watch", str(out), "--every", "0.1", "--html", str(page)]
            watching.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        deadline = time.monotonic() + 120
        while record["round"] <= 3 and (not page.exists() or page.stat().st_mtime_ns == pages[-1]):
            assert time.monotonic() < deadline and watching[0].poll() is None
            time.sleep(0.05)
        pages.append(page.stat().st_mtime_ns)

    try:
        run(Experiment(rounds=4, **SMALL), out, on_round=wait_for_a_new_page)
        shown, _ = watching[0].communicate(timeout=120)
        assert watching[0].returncode == 0 and "finished" in shown and len(set(pages)) >= 4
        assert '"status":"finished"' in page.read_text()
    finally:
        watching[0].kill()


def test_ctrl_c_ends_it_and_touches_nothing(tmp_path):
    run(Experiment(rounds=2, **SMALL), tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    lock = (tmp_path / "run" / ".lock").open("rb")
    fcntl.flock(lock, fcntl.LOCK_EX)  # as if it were still running
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    page = tmp_path / "live.html"
    watching = subprocess.Popen([*FEDPNS, "watch", str(tmp_path / "run"), "--html", str(page)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 180
    while not page.exists():
        assert time.monotonic() < deadline and watching.poll() is None
        time.sleep(0.05)
    watching.send_signal(signal.SIGINT)
    assert watching.wait(timeout=120) == 130 and watching.stderr.read() == b""
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}


def test_it_waits_for_a_run_that_has_not_begun(tmp_path):
    """A stopped run is known by its lock, which nobody holds; one that resumes is watched to its end."""
    out = tmp_path / "run"
    watching = subprocess.Popen(
        [*FEDPNS, "watch", str(out), "--every", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert watching.stderr.readline().startswith("waiting for ")
        run(Experiment(rounds=3, **SMALL), out)
        shown, _ = watching.communicate(timeout=120)
        assert watching.returncode == 0 and "finished" in shown
    finally:
        watching.kill()


def test_it_knows_when_a_run_was_stopped(tmp_path, capsys, monkeypatch):
    seen = []
    with pytest.raises(Interrupted):
        run(Experiment(rounds=9, **SMALL), tmp_path / "run", on_round=seen.append, stop=lambda: len(seen) >= 2)
    monkeypatch.setattr("fedpns_ray.reporting.liveness.GRACE", 0.3)
    assert main(["watch", str(tmp_path / "run"), "--every", "0.1"]) == 1
    assert "stopped after round 2 of 9; the same command resumes" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["absent", "--once"], ["absent", "--wait", "0.2"], [".", "--every", "0"], ["file"], [".", "--wait", "soon"]],
)
def test_bad_input_is_one_line(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("not a run")
    assert main(["watch", *arguments]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("waiting for")]
    assert len(said) == 1
