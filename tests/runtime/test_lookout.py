"""The control store is lost during a run or a study: one line, soon, and the folder resumes to the same bits."""

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from fedpns_ray import Experiment, run
from fedpns_ray.errors import LostError
from fedpns_ray.runtime import lookout as loss
from tests.bench import Bench
from tests.heads import ray_head, wait_for_child

E = Experiment(strategy="fedpns", nodes=10, fraction=0.3, samples_per_node=400, epochs=2, rounds=500)
STUDY = "base: {nodes: 10, fraction: 0.3, samples_per_node: 400, epochs: 2, rounds: 500}\nseeds: 1-2\n"
LOST = "was lost (its control store has not answered for 10 s); the same command resumes\n"


@pytest.fixture
def store(monkeypatch):
    """A port that answers until it is closed, watched with shorter limits."""
    monkeypatch.setattr(loss, "LOST_AFTER", 1.0)
    monkeypatch.setattr(loss, "LOOK_EVERY", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def cluster_there(store):
    with loss.looked_after(f"127.0.0.1:{store.getsockname()[1]}", "the cluster"):
        yield


def test_a_guarded_call_is_a_call(cluster_there):
    assert loss.guarded(divmod, 7, 2) == (3, 1) and loss.guarded(int, "11", base=2) == 3
    with pytest.raises(ZeroDivisionError):
        loss.guarded(divmod, 7, 0)


def test_a_call_that_waits_for_a_lost_cluster_is_left_behind(cluster_there, store):
    began = time.monotonic()
    store.close()
    with pytest.raises(LostError, match="the cluster was lost"):
        loss.guarded(time.sleep, 60)
    assert 0.9 < time.monotonic() - began < 30
    for late in (lambda: loss.guarded(pytest.fail, "called"), loss.refuse_lost):
        with pytest.raises(LostError):
            late()


def test_a_failure_while_the_store_is_silent_is_put_down_to_the_loss(cluster_there, store):
    store.close()
    with pytest.raises(LostError):
        loss.guarded(divmod, 7, 0)


def test_a_store_that_comes_back_was_not_lost(monkeypatch, cluster_there, store):
    monkeypatch.setattr(loss, "LOST_AFTER", 4.0)  # this process may be held up for a while, too
    address = store.getsockname()
    store.close()
    time.sleep(0.5)
    with socket.create_server(address):
        loss.guarded(time.sleep, 4.5)
        loss.refuse_lost()


def test_a_store_that_accepts_connections_but_answers_nothing_is_lost(monkeypatch, cluster_there):
    """As a frozen one: this port never says a word."""
    monkeypatch.setattr(loss, "MUTE_AFTER", 2.0)
    monkeypatch.setattr(loss, "ANSWERS_WITHIN", 0.5)
    with pytest.raises(LostError, match="the cluster was lost .its control store has not answered for 2 s"):
        loss.guarded(time.sleep, 60)


def test_a_frozen_control_store():
    """A real one, frozen and thawed: the kernel still accepts connections for it."""
    with ray_head({**os.environ}) as (head, port):
        address, store = f"127.0.0.1:{port}", wait_for_child(head, "gcs_server")
        assert loss.answers(address) and _responds_soon(address)
        store.suspend()
        deadline = time.monotonic() + 60
        while store.status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
            time.sleep(0.01)  # its threads stop one after the other
        assert loss.answers(address) and not loss.responds(address)
        store.resume()
        assert _responds_soon(address)


def _responds_soon(address):
    """A store that runs may need longer than it is given, where others use the machine."""
    deadline = time.monotonic() + 60
    while not (found := loss.responds(address)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def test_one_line_and_resumed_to_the_same_bits(tmp_path):
    """Three in parallel, since each takes ten seconds: a run and a study on clusters, and a run on its private Ray."""
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(lose, tmp_path) for lose in (_run_on_a_cluster, _study_on_a_cluster, _run_on_its_own)]:
            done.result()


def _lose(bench, process, owner):
    """Kill the control store that `owner` has started, and check how the command ends."""
    bench.wait_for_lines(process, 15, within=480)  # three Rays start at once
    wait_for_child(owner, "gcs_server").kill()
    began = time.monotonic()
    code, took = process.wait(timeout=120), time.monotonic() - began
    out, err = process.communicate()
    said = [line for line in err.splitlines() if not line.startswith(("starting ", "Ray: "))]
    assert (code, out, len(said)) == (1, "", 1) and said[0].startswith("fedpns: the Ray ") and err.endswith(LOST), err
    assert took < 45  # Ray itself tries for 60 s
    return err


def _bench(folder, *arguments):
    folder.mkdir()
    (folder / "e.yaml").write_text(E.to_yaml())
    (folder / "s.yaml").write_text(STUDY)
    bench = Bench(folder, *arguments)
    bench.environment["RAY_AUTH_MODE"] = "token"  # which Ray takes by itself for `auto`, not for an address
    return bench


def _run_on_a_cluster(folder):
    bench = _bench(folder / "run", "run", "e.yaml", "--out", "r", "--json")
    with ray_head(bench.environment) as (head, port):
        said = _lose(bench, bench.start("--address", f"127.0.0.1:{port}"), head)
    assert f":{port} was lost" in said
    process = bench.start("--in-process")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert json.loads(out)["weights_sha256"] == run(E).summary["weights_sha256"]


def _study_on_a_cluster(folder):
    bench = _bench(folder / "study", "study", "s.yaml", "--out", "s", "--json")
    with ray_head(bench.environment) as (head, port):
        _lose(bench, bench.start("--address", f"127.0.0.1:{port}"), head)
    trials = sorted((bench.folder / "s" / "trials").iterdir())
    assert trials and not any((trial / "summary.json").exists() for trial in trials)
    process = bench.start()
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    for trial in trials:
        e = Experiment.from_yaml(trial / "config.yaml")
        digest = json.loads((trial / "summary.json").read_text())["weights_sha256"]
        assert digest == run(e).summary["weights_sha256"]


def _run_on_its_own(folder):
    bench = _bench(folder / "own", "run", "e.yaml", "--rounds", "100000", "--out", "r", "--json")
    process = bench.start()
    assert "the Ray that was started for this run was lost" in _lose(bench, process, process)
    assert not bench.left_behind(agents=False) and (bench.folder / "r" / "checkpoint.npz").stat().st_size


GOING_AWAY = """
import socket, struct, threading
from fedpns_ray.runtime.lookout import responds

def frame(kind, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, 0]) + struct.pack(">I", 0) + payload

def serve(server):
    while True:
        connection, _ = server.accept()
        connection.recv(4096)
        connection.sendall(frame(4, b"") + frame(7, struct.pack(">II", 0, 11) + b"too_many_pings"))

server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=serve, args=(server,), daemon=True).start()
print(responds(f"127.0.0.1:{server.getsockname()[1]}"))
"""


@pytest.mark.parametrize("own", [None, "INFO"])
def test_grpc_prints_nothing_unless_its_user_wants_it(own):
    """A store under load asks for fewer questions, which gRPC would tell the terminal."""
    environment = {key: value for key, value in os.environ.items() if key != "GRPC_VERBOSITY"}
    environment |= {"GRPC_VERBOSITY": own} if own else {}
    done = subprocess.run([sys.executable, "-c", GOING_AWAY], env=environment, capture_output=True, text=True)
    assert done.stdout == "False\n" and ("Got goaway" in done.stderr) == bool(own), done.stderr
