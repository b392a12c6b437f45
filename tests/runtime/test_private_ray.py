"""The Ray that a run starts for itself: nobody else reaches it, and nothing of it is left."""

import contextlib
import fcntl
import ipaddress
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import ray

from fedpns_ray.runtime import ray_folder, ray_private
from fedpns_ray.runtime.ray_folder import LOCK, NAME, RayFolder, clear_leftovers
from fedpns_ray.runtime.session import session
from tests.bench import Bench
from tests.heads import ray_head

SMALL = ["--nodes", "10", "--samples-per-node", "40", "--epochs", "1"]


@pytest.fixture
def place(tmp_path_factory, monkeypatch):
    """A temporary folder of this test's own, with a path short enough for sockets."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="fp-", dir="/tmp"))
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def folders(place):
    return sorted(path.name for path in place.iterdir() if path.name.startswith((NAME, f".{NAME}")))


def listeners(process):
    """Where the processes of a tree listen: (address, process)."""
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            for connection in one.net_connections(kind="inet"):
                if connection.status == psutil.CONN_LISTEN:
                    yield ipaddress.ip_address(connection.laddr.ip.removeprefix("::ffff:")), one.name()


def test_every_listener_is_on_loopback_and_the_folder_goes_with_it(place):
    @ray.remote
    def echo():
        return os.getpid()

    before = dict(os.environ)
    with session():
        assert ray.get(echo.remote()) != os.getpid()
        (name,) = folders(place)
        assert list((place / name).glob("session_2*/logs"))
        found = list(listeners(psutil.Process()))
        assert {"gcs_server", "raylet"} <= {name for _, name in found} and len(found) >= 6
        assert [(str(address), name) for address, name in found if not address.is_loopback] == []
    assert folders(place) == [] and not (place / "ray").exists()
    from ray._private import ray_constants

    assert ray_constants.ENABLE_RAY_CLUSTER  # a cluster joined next is not affected
    assert dict(os.environ).get("RAY_ADDRESS") == before.get("RAY_ADDRESS")


def test_without_it_ray_listens_everywhere(place, monkeypatch):
    """Else the test above could not fail."""
    monkeypatch.setattr(ray_private, "on_loopback", contextlib.nullcontext)
    with session():
        assert any(not address.is_loopback for address, _ in listeners(psutil.Process()))


def test_a_killed_run_is_cleared_by_the_next_and_others_are_not_touched(place, tmp_path):
    bench = Bench(tmp_path, "run", *SMALL, "--rounds", "100000", "--out", "r", "--json")
    process = bench.start()
    bench.wait_for_lines(process, 3)
    (killed,) = folders(place)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not bench.left_behind() and folders(place) == [killed]

    theirs = place / "ray" / "session_2026-01-01_00-00-00_000000_1"  # of a Ray that we did not start
    theirs.mkdir(parents=True)
    (tmp_path / "second").mkdir()
    living = Bench(tmp_path / "second", "run", *SMALL, "--rounds", "100000", "--out", "r", "--json")
    with ray_head(living.environment) as (head, _):  # a cluster of someone's
        process = living.start()
        try:
            living.wait_for_lines(process, 3)
            (used,) = folders(place)
            assert used != killed  # it cleared what the killed run had left
            clear_leftovers(place)
            assert folders(place) == [used] and theirs.is_dir()
            at = living.lines()
            living.wait_for_lines(process, at + 3)  # and is alive
            assert head.poll() is None
        finally:
            process.terminate()
            process.communicate(timeout=120)
    assert folders(place) == [] and theirs.is_dir()


def test_a_run_that_fails_leaves_no_folder(place, tmp_path):
    with pytest.raises(ZeroDivisionError), session():
        assert len(folders(place)) == 1
        1 / 0  # noqa: B018
    assert folders(place) == []


# --- without a Ray ---------------------------------------------------------------------------------------------------


def test_only_what_is_certainly_left_over_is_removed(place, monkeypatch):
    left, used, foreign, unmarked = (place / f"{NAME}{name}" for name in ("left", "used", "foreign", "unmarked"))
    for folder in (left, used, foreign, unmarked):
        (folder / "session_x").mkdir(parents=True)
        (folder / LOCK).touch()
    (unmarked / LOCK).unlink()
    (place / f"{NAME}link").symlink_to(place / "elsewhere")
    held = (used / LOCK).open("rb")
    fcntl.flock(held, fcntl.LOCK_EX)
    there = [["raylet", f"--session-dir={foreign}/session_x"]]
    monkeypatch.setattr(ray_private, "ray_commands", lambda *programs: iter(there))
    clear_leftovers(place)
    assert folders(place) == sorted([used.name, foreign.name, unmarked.name, f"{NAME}link"])
    held.close()
    monkeypatch.setattr(ray_private, "ray_commands", lambda *programs: iter(()))
    monkeypatch.setattr(os, "getuid", lambda: 12345)  # folders of another user
    clear_leftovers(place)
    assert used.is_dir() and foreign.is_dir()
    monkeypatch.undo()
    os.utime(unmarked, (0, 0))  # processes that were ending have made it again, and nobody holds it
    clear_leftovers(place)
    assert not unmarked.exists()


def test_the_lock_ends_with_the_process(place):
    """However it ends."""
    script = (
        "from fedpns_ray.runtime.ray_folder import RayFolder; import os, signal\n"
        "folder = RayFolder(); print(folder.path, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert Path(done.stdout.strip()).is_dir() and done.returncode == -signal.SIGKILL
    folder = RayFolder()
    assert folders(place) == [folder.path.name] and folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
    assert folders(place) == []


def test_a_long_temporary_folder_is_not_used(monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", "/scratch/of/somebody/with/a/long/name")
    assert ray_folder.temporary_folder() == Path("/tmp")
