"""Nothing waits forever: what hangs is noticed by another process, named, killed, and its work done again."""

import ast
import contextlib
import json
import logging
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from fedpns_ray import Experiment, Layout, run, run_study
from fedpns_ray.records.storage import Storage
from fedpns_ray.runtime.deadlines import FIRST, PATIENCE, SLOWER, Deadline, simulated_delay
from fedpns_ray.study.trial_watch import TrialWatch
from tests.bench import Bench
from tests.heads import wait_for_child
from tests.runtime.test_same_bits import Mischief, ask, assert_same, places

PACKAGE = Path(__file__).parent.parent.parent / "fedpns_ray"
E = Experiment(strategy="fedpns", nodes=8, fraction=0.5, samples_per_node=200, epochs=2, rounds=400)
"""Long enough: rounds take milliseconds, and news of them may arrive a second late."""
SHORT = 5.0
"""Seconds of patience, in tests."""
AT_ONCE = 60.0
"""Seconds: 10 are promised, for a machine that nobody else uses; without the promise it would be minutes."""


def test_the_longest_of_patience_the_median_and_simulated_delays():
    deadline = Deadline(10)
    assert deadline.limit == FIRST * 10
    deadline.observe(0.1)
    assert deadline.limit == 10
    for seconds in (3, 4, 5):
        deadline.observe(seconds)
    assert deadline.limit == SLOWER * 3.5
    slow = Deadline(10, delay=100)
    assert slow.limit == FIRST * 100
    slow.observe(1)
    assert slow.limit == 200 and Deadline().limit == FIRST * PATIENCE


# --- the code --------------------------------------------------------------------------------------------------------

MOST = 600
"""Seconds of the longest single wait."""
WAITS = ("ray.get", "ray.wait")


def waits(tree):
    """Every call that waits for Ray, alone or under `guarded`, with its keywords."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in WAITS or (called == "guarded" and ast.unparse(node.args[0]) in WAITS):
                yield node, {keyword.arg: keyword.value for keyword in node.keywords}


def constants(tree):
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }


def test_every_wait_has_a_named_limit():
    known, found = {}, 0
    trees = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
    for tree in trees.values():
        known |= {name: value for name, value in constants(tree).items() if isinstance(value, float)}
    for path, tree in trees.items():
        for node, keywords in waits(tree):
            limit = ast.unparse(keywords["timeout"]) if "timeout" in keywords else "none"
            named = limit in ("0", "within") or known.get(limit, MOST + 1) <= MOST
            assert named, f"{path}: line {node.lineno}: the limit is {limit}"
            found += 1
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "fit":
                assert path.name == "tune.py"  # under `guarded`, with a TrialWatch
    assert found > 8


LIMITED = {
    "subprocess.run": "timeout", "subprocess.call": "timeout", "subprocess.check_call": "timeout",
    "subprocess.check_output": "timeout", "socket.create_connection": "timeout", "urllib.request.urlopen": "timeout",
    "requests.get": "timeout", "requests.post": "timeout",
}  # fmt: skip
"""Functions that wait for another process, and the keyword that limits them."""
ENDLESS = ("join", "wait", "result", "acquire", "communicate", "get", "recv", "accept", "receive")
"""Methods of threads, events, futures, locks, processes, queues and sockets that wait for ever without an argument."""


def endless(tree):
    """(what, line) of every other call that may wait for ever."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called, keywords = ast.unparse(node.func), {keyword.arg for keyword in node.keywords}
            if LIMITED.get(called, "") not in {*keywords, ""}:
                yield called, node.lineno
            if node.func.attr in ENDLESS and not node.args and not keywords:
                yield called, node.lineno
        elif isinstance(node, ast.AsyncFor):
            yield f"async for … in {ast.unparse(node.iter)}", node.lineno


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_else_waits_without_a_limit(path):
    """A result is only taken of what is done, as `asyncio.wait` and `Future.done` said."""
    done = {("study/submission.py", "waiting.result"), ("runtime/lookout.py", "answer.result")}
    here = str(path.relative_to(PACKAGE))
    found = [(what, line) for what, line in endless(ast.parse(path.read_text())) if (here, what) not in done]
    assert not found, f"{here}: {found}"


@pytest.mark.parametrize(
    "code", ["thread.join()", "event.wait()", "queue.get()", "future.result()", "lock.acquire()", "process.wait()",
             "subprocess.run(words)", "urllib.request.urlopen(url)", "socket.create_connection(a)",
             "async def f():\n    async for text in log:\n        pass"],
)  # fmt: skip
def test_each_of_them_would_be_found(code):
    """Else the test above could not fail."""
    assert list(endless(ast.parse(code)))


# --- freezes ---------------------------------------------------------------------------------------------------------


def freeze(k):
    return lambda: os.kill(ask(f"node actor {k}", "describe")["pid"], signal.SIGSTOP)


def test_a_frozen_node_actor_is_killed_and_its_nodes_train_elsewhere(cluster, caplog):
    mischief = Mischief((5, freeze(0)), (20, freeze(1)))
    with caplog.at_level(logging.INFO, "fedpns_ray"):
        disturbed = run(E, on_round=mischief, layout=Layout(actors=2, patience=SHORT, cpu_fallback=True))
    assert not mischief.deeds
    faults = [fault for record in disturbed.records for fault in record.faults or ()]
    named = [fault.partition(" did")[0] for fault in faults]  # again, if others hold an actor up for as long
    assert list(dict.fromkeys(named)) == ["node actor 0", "node actor 1"], faults
    assert all(fault in caplog.text and "s and was killed" in fault for fault in faults)
    assert_same(disturbed, run(E))


def test_all_node_actors_frozen_at_once(cluster):
    def deed():
        for place in places():
            os.kill(place["pid"], signal.SIGSTOP)

    disturbed = run(E, on_round=Mischief((5, deed)), layout=Layout(actors=2, patience=SHORT, cpu_fallback=True))
    assert_same(disturbed, run(E))


def test_a_frozen_server_is_killed_and_the_run_resumes(cluster, tmp_path, caplog):
    def deed():
        os.kill(ask("server", "pid"), signal.SIGSTOP)

    layout = Layout(actors=2, patience=SHORT, cpu_fallback=True)
    disturbed = run(E, tmp_path / "r", on_round=Mischief((25, deed)), layout=layout)
    assert "the server did not answer for" in caplog.text and "resuming from the checkpoint" in caplog.text
    faults = [fault for record in disturbed.records for fault in record.faults or ()]
    assert any(fault.startswith("the server did not answer") for fault in faults), faults
    assert_same(disturbed, run(E))


def test_a_frozen_trial_is_killed_and_resumes(cluster, tmp_path, caplog):
    """The worker is frozen from outside once its trial has records."""
    study = {"base": E.settings(), "seeds": "1-2", "axes": {"strategy": ["fedpns", "fedavg"]}}
    frozen = []

    class Freezer:
        def __enter__(self): ...
        def __exit__(self, *error): ...
        def begin(self, trials, done, packing): ...
        def begin_search(self, tried, packing): ...
        def tick(self): ...

        def update(self, name, experiment, state, last):
            if not frozen and (last.round or 0) > 20:
                frozen.append(last["pid"])
                os.kill(frozen[0], signal.SIGSTOP)

    result = run_study(study, tmp_path / "s", progress=Freezer(), patience=SHORT, cpu_fallback=True)
    assert frozen
    deadline = time.monotonic() + 60
    while psutil.pid_exists(frozen[0]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not psutil.pid_exists(frozen[0])
    assert not result.outcome.errors and "its worker was killed" in caplog.text
    assert "its worker was killed" in (tmp_path / "s" / "faults.txt").read_text()
    for trial in result.trials:
        digest = json.loads((tmp_path / "s" / "trials" / trial.name / "summary.json").read_text())["weights_sha256"]
        assert digest == run(trial.experiment).summary["weights_sha256"]


HANGS_ONCE = """
import pathlib, sys, time
from fedpns_ray.strategies import Selection

class Hanging(Selection):
    name = "hanging"

    def draw(self, rng, probe):
        return [0, 1]

mark = pathlib.Path(__file__).with_name("hung")
if "default_worker" in sys.argv[0] and not mark.exists():
    mark.touch()
    time.sleep(600)
"""


def test_a_worker_that_hangs_while_it_imports_is_killed(tmp_path):
    (tmp_path / "hanging.py").write_text(HANGS_ONCE)
    small = "nodes: 4, fraction: 0.5, samples_per_node: 20, epochs: 1, rounds: 3"
    (tmp_path / "s.yaml").write_text(f"base: {{strategy: 'hanging:Hanging', {small}}}\nseeds: 1\npatience: 2\n")
    bench = Bench(tmp_path, "study", "s.yaml", "--out", "s")
    process = bench.start()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0 and (tmp_path / "hung").exists(), err
    assert "its worker was killed" in (tmp_path / "s" / "faults.txt").read_text()


def test_simulated_delays_are_no_silence(tmp_path):
    """A trial's deadline knows that its nodes are slow."""
    slow = E.but(slow_fraction=1.0, slow_seconds=3.0)
    watch, killed = TrialWatch(Storage(tmp_path), 1.0), []
    watch._kill = lambda trial, fault: killed.append(trial)
    trial = SimpleNamespace(trial_id="t", temporary_state=SimpleNamespace(ray_actor=None))
    for delay, expected in ((simulated_delay(slow), []), (0.0, ["t"])):
        watch.started(trial, delay)
        watch._heard["t"] -= FIRST + 1
        watch.check([(trial, "name")])
        assert killed == expected


def test_actors_that_cannot_start_end_the_run_at_once(tmp_path):
    """A part that workers cannot import, as on a machine with other packages: no actor will ever start."""
    (tmp_path / "absent.py").write_text(
        "import sys\nassert 'default_worker' not in ' '.join(sys.argv), 'not here'\n"
        "from fedpns_ray.strategies import Selection\n"
        "class Mine(Selection):\n    name = 'mine'\n    def draw(self, rng, probe):\n        return [0]\n"
    )
    words = ["run", "--strategy", "absent:Mine", "--nodes", "4", "--rounds", "3", "--actors", "2", "--out", "r"]
    process = Bench(tmp_path, *words).start()
    _, err = process.communicate(timeout=300)
    assert process.returncode in (1, 2) and "not here" in err and err.count("Traceback") == 0, err


# --- a signal to a run that is stuck ---------------------------------------------------------------------------------


def below(process, name):
    """The first process of a tree with this in its command line."""
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if name in " ".join(child.cmdline()):
                return child
    raise LookupError(name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_a_stuck_run(tmp_path, number):
    """With a frozen actor and patience for minutes; the checkpoint is intact and nothing is left behind."""
    e = E
    (tmp_path / "e.yaml").write_text(e.to_yaml())
    bench = Bench(tmp_path, "run", "e.yaml", "--out", "r", "--actors", "2", "--patience", "600")
    process = bench.start()
    bench.wait_for_lines(process, 15)
    below(process, "NodeActor").suspend()
    time.sleep(1)
    began = time.monotonic()
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=2 * AT_ONCE)
    assert process.returncode == 130 and time.monotonic() - began < AT_ONCE, err
    assert "the run ends at its last checkpoint" in err and "the same command resumes" in err
    assert not bench.left_behind()
    process = bench.start("--json")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert json.loads(out)["weights_sha256"] == run(e).summary["weights_sha256"]


def test_the_first_signal_ends_a_stuck_study(tmp_path):
    """One of its two trials is frozen; the other leaves its checkpoint."""
    (tmp_path / "s.yaml").write_text(
        "base: {nodes: 8, fraction: 0.5, samples_per_node: 200, epochs: 2, rounds: 3000}\nseeds: 1-2\npatience: 600\n"
    )
    bench = Bench(tmp_path, "study", "s.yaml", "--out", "s")
    process = bench.start()
    bench.wait_for_lines(process, 40)
    below(process, "Trainable").suspend()
    time.sleep(1)
    began = time.monotonic()
    process.terminate()
    _, err = process.communicate(timeout=2 * AT_ONCE)
    assert process.returncode == 130 and time.monotonic() - began < AT_ONCE, (time.monotonic() - began, err)
    assert "the same command resumes" in err and not bench.left_behind()


def test_the_first_signal_ends_a_long_round_in_this_process(tmp_path):
    """Nobody looks whether a stop was asked for: nodes are simulated to take ten minutes."""
    words = ["run", "--in-process", "--nodes", "4", "--rounds", "3", "--slow-fraction", "1", "--slow-seconds", "600"]
    bench = Bench(tmp_path, *words, "--out", "r")
    process = bench.start()
    deadline = time.monotonic() + 120
    while not (tmp_path / "r" / "config.yaml").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=2 * AT_ONCE)
    assert process.returncode == 130 and time.monotonic() - began < AT_ONCE, err
    assert "the same command resumes" in err and "Traceback" not in err


@pytest.mark.parametrize("later", [0.0, 1.0])
def test_a_signal_while_ray_starts_ends_the_command_at_once(tmp_path, later):
    """Nothing is under way yet; Ray's own handlers would end the process in their words, or in none."""
    bench = Bench(tmp_path, "run", "--nodes", "4", "--rounds", "30000", "--actors", "2", "--out", "r")
    process = bench.start()
    wait_for_child(process, "gcs_server")
    time.sleep(later)
    began = time.monotonic()
    process.terminate()
    _, err = process.communicate(timeout=2 * AT_ONCE)
    assert process.returncode == 130 and time.monotonic() - began < AT_ONCE, err
    *before, last = err.splitlines()
    assert last == "stopped; the same command resumes from r" and not bench.left_behind()
    before = [line for line in before if not line.startswith(("starting ", "Ray: "))]
    assert not before or (before[0] == "stopping …" and "Traceback" not in err), err  # the run was under way by then
