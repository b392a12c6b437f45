"""`fedpns run` on a Ray of its own, or on one that is there: stopped, killed, resumed; nothing left behind."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fedpns_ray import Experiment, run
from tests.bench import Bench
from tests.heads import free_port, ray_head

E = Experiment(strategy="fedpns", nodes=10, fraction=0.3, samples_per_node=400, epochs=2, rounds=600)
NO_AGENT = "No available agent to submit job, please try again later"
"""Ray's answer for a while after its dashboard has started."""


@pytest.fixture
def bench(tmp_path):
    (tmp_path / "e.yaml").write_text(E.to_yaml())
    return Bench(tmp_path, "run", "e.yaml", "--out", "r")


def test_stopped_killed_and_resumed_to_the_same_bits(bench):
    for stop in (
        lambda process: os.killpg(process.pid, signal.SIGINT),  # Ctrl-C reaches every process of the terminal
        lambda process: process.terminate(),
    ):
        before, process = bench.lines(), bench.start()
        bench.wait_for_lines(process, before + 15)
        stop(process)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130 and "the same command resumes" in err, err
        assert before < bench.lines() < E.rounds and not bench.left_behind()

    before, process = bench.lines(), bench.start()
    bench.wait_for_lines(process, before + 25)
    process.kill()
    process.communicate()
    assert bench.lines() < E.rounds and not bench.left_behind(agents=False)

    process = bench.start("--json", "--profile")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and err == "", err
    assert json.loads(out)["weights_sha256"] == run(E).summary["weights_sha256"]
    assert json.loads((bench.folder / "r" / "timeline.json").read_text())


def test_as_a_job_on_a_cluster_that_is_there(bench, tmp_path_factory):
    """`ray start`, `ray job submit`: the job's driver joins by RAY_ADDRESS, with Ray's token as it is by default."""
    ray = str(Path(sys.executable).with_name("ray"))
    dashboard = free_port()
    environment = {**bench.environment, "HOME": str(bench.folder), "RAY_DISABLE_IMPORT_WARNING": "1"}
    token = subprocess.run([ray, "get-auth-token", "--generate"], env=environment, capture_output=True, text=True)
    assert token.returncode == 0, token.stderr
    environment |= {"RAY_AUTH_MODE": "token"}
    with ray_head(environment, dashboard):
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", dashboard), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.3)
        out = bench.folder / "job"
        short = ["--rounds", "30", "--actors", "2", "--out", str(out)]
        while True:
            done = subprocess.run(
                [ray, "job", "submit", f"--address=http://127.0.0.1:{dashboard}", "--",
                 *bench.command[:4], str(bench.folder / "e.yaml"), *short],
                env=environment, capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            if NO_AGENT not in done.stdout + done.stderr or time.monotonic() > deadline:
                break
        assert done.returncode == 0, done.stdout + done.stderr
        assert "final accuracy" in done.stdout
        digest = json.loads((out / "summary.json").read_text())["weights_sha256"]
        assert digest == run(E.but(rounds=30)).summary["weights_sha256"]
    for process in bench.left_behind(within=30):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
