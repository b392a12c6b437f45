"""Jobs on a real head that asks for a token: sent, listed, read and stopped from a machine that only has the token."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedpns_ray import Experiment, load, run
from fedpns_ray.doctor import idle
from fedpns_ray.study.jobs import Job, Jobs, idle_seconds
from fedpns_ray.study.submission import Submission
from fedpns_ray.terminal.command_line import main
from fedpns_ray.terminal.jobs import reminder
from tests.heads import free_port, ray_head

ROOT = Path(__file__).parent.parent.parent
TOKEN = "0123456789abcdef" * 4
SMALL = ("--nodes", "6", "--samples-per-node", "20", "--epochs", "1")


@pytest.fixture(scope="module")
def url():
    port = free_port()
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment.pop("RAY_ADDRESS", None)
    with ray_head(environment, dashboard=port):
        address = f"http://127.0.0.1:{port}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_AUTH_TOKEN", TOKEN)
            deadline = time.monotonic() + 180
            while True:
                try:
                    Jobs(address)
                    break
                except ValueError:
                    assert time.monotonic() < deadline
                    time.sleep(0.5)
        yield address


@pytest.fixture
def laptop(tmp_path, monkeypatch):
    """Another machine: the token in a file, and no word about how clusters use it."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "clone").mkdir()
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "clone")
    return tmp_path


def test_a_run_is_sent_followed_and_fetched(url, laptop, capsys):
    out = laptop / "head" / "r"
    assert main(["run", *SMALL, "--rounds", "3", "--submit", url, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "sent as fedpns-run-" in said.err and "the head of the cluster runs until" in said.err
    (here,) = (laptop / "clone" / "runs").iterdir()
    assert f"fetched to runs/{here.name}; its checkpoints are in {out} on the cluster" in said.out
    e = Experiment(nodes=6, samples_per_node=20, epochs=1, rounds=3)
    assert load(here).summary["weights_sha256"] == run(e, progress=False).summary["weights_sha256"]
    assert not (here / "checkpoint.npz").exists()


def test_a_job_is_listed_read_and_stopped(url, laptop, capsys):
    out = str(laptop / "head" / "long")
    words = ["run", *SMALL, "--rounds", "1000000", "--out", out]
    name = Submission(url, words, None, out).start(lambda text: None)
    assert main(["run", *SMALL, "--rounds", "2", "--submit", url, "--out", out]) == 2
    assert f"is in use by job {name}; wait for it, or stop it: fedpns jobs stop {name}" in capsys.readouterr().err
    deadline = time.monotonic() + 240
    while not (Path(out) / "rounds.jsonl").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    for action, words in (
        ("list", "running"),
        ("logs", ""),
        ("stop", f"{name} is stopped; the command that sent it resumes it\n"),
    ):
        assert main(["jobs", action, "--address", url]) == 0
        assert words in capsys.readouterr().out
    assert (Path(out) / "checkpoint.npz").exists()  # it was not killed: there was time for one
    assert main(["jobs", "stop", "--address", url]) == 2
    assert capsys.readouterr().err == "fedpns: name: no job is running\n"
    assert main(["jobs", "logs", name[:-1] + "7", "--address", url]) == 2
    assert "is not a job of this cluster; did you mean" in capsys.readouterr().err


def test_a_wrong_token_is_refused_in_one_line(url, laptop, capsys):
    (laptop / "token").write_text("f" * 64)
    assert main(["jobs", "list", "--address", url]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"fedpns: address: {url} refuses the token of this machine") and err.count("\n") == 1


def test_a_forgotten_head_is_remembered():
    done = Job("a", "succeeded", False, 1000.0, 2000.0, "")
    assert idle_seconds([done], 20000.0) == 18000.0 and idle_seconds([], 0.0) is None
    assert idle_seconds([done, Job("b", "running", True, 3000.0, None, "")], 20000.0) is None
    assert reminder(18000.0).startswith("no job has run for 5 h 0 min: the head still runs")


# --- a head that ends itself ------------------------------------------------------------------------------------------

WATCHED = """
import sys
from pathlib import Path
from fedpns_ray.doctor import idle
idle.end_cluster = lambda config: print("ended", config["cluster_name"], flush=True)
idle.FOLDER = Path(sys.argv.pop(1))
sys.exit(idle.main(sys.argv[1:]))
"""


def watcher(folder, url, *arguments):
    """The process that watches, on this head; it says so instead of ending machines, which test_aws.py shows."""
    command = [sys.executable, "-c", WATCHED, str(folder), "--address", url, *arguments]
    environment = os.environ | {"HOME": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_head_ends_itself_after_idle_hours_and_not_before(url, laptop):
    (laptop / "ray_bootstrap_config.yaml").write_text("cluster_name: fedpns\nprovider: {type: aws}\n")
    out = str(laptop / "head" / "at-work")
    name = Submission(url, ["run", *SMALL, "--rounds", "1000000", "--out", out], None, out).start(lambda text: None)
    replaced = watcher(laptop, url, "--hours", str(6 / 3600), "--watch")
    deadline = time.monotonic() + 120
    while not (laptop / "idle.pid").exists():
        assert time.monotonic() < deadline and replaced.poll() is None
        time.sleep(0.1)
    time.sleep(8)  # it watches by now
    assert replaced.poll() is None, "a job is running"
    watching = watcher(laptop, url, "--hours", str(12 / 3600), "--watch")  # as a second `ray up` does
    assert replaced.communicate(timeout=120)[0] == "" and replaced.returncode == 0, "the second one watches now"
    Jobs(url).stop(name)
    stopped = time.monotonic()  # the 12 s count from its last look at a running job, which was a little earlier
    said = watching.communicate(timeout=120)[0]
    assert time.monotonic() - stopped > 5 and said.endswith("ended fedpns\n") and "ends itself in" in said, said


@pytest.mark.parametrize(
    ("file", "hours", "problem"),
    [
        ("provider: {type: local}", "4", "nothing is charged for your own machines"),
        ("", "4", "this is not the head of one"),
        ("provider: {type: aws}", "0", "argument --hours: invalid"),
    ],
)
def test_what_is_not_ended_is_refused(tmp_path, monkeypatch, capsys, file, hours, problem):
    monkeypatch.setenv("HOME", str(tmp_path))
    if file:
        (tmp_path / "ray_bootstrap_config.yaml").write_text(file)
    try:
        code = idle.main(["--hours", hours])
    except SystemExit as end:
        code = end.code
    assert problem in capsys.readouterr().err and code == 2


def test_a_ray_that_does_not_answer_is_left_alone(monkeypatch, capsys):
    monkeypatch.setattr(idle, "LOOK_EVERY", 0.02)
    looks = iter([OSError("no answer")] * 5)

    def jobs():
        raise next(looks)

    assert idle.watch(jobs, 60.0, replaced=lambda: not looks.__length_hint__()) is False
    assert capsys.readouterr().out.count("Ray does not answer, so nothing is ended: no answer") == 5
