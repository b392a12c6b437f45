"""The faults: each is injected for real, and says what it has done; nothing counts that was not confirmed."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import psutil

ACTORS = ("NodeActor", "ServerActor", "Trainable")
"""Titles of the processes that work for a run or a study."""


class NotInjectedError(Exception):
    """The fault could not be injected, such as into a run that was over: it does not count."""


def _confirm(done, within=30.0):
    deadline = time.monotonic() + within
    while not done():
        if time.monotonic() > deadline:
            raise NotInjectedError
        time.sleep(0.02)


def _victim(scene, rng, *words):
    found = scene.processes(*words)
    if not found:
        raise NotInjectedError
    return rng.choice(found)


def _gone(process):
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def _title(process):
    return process.name() if process.name() in ("raylet", "gcs_server") else " ".join(process.cmdline())[:40]


def kill(scene, rng):
    """SIGKILL of an actor, a worker, the driver, a raylet or the control store."""
    if rng.random() < 0.25:
        scene.process.kill()
        scene.process.wait()
        return "the driver was killed"
    process = _victim(scene, rng, *ACTORS, *ACTORS, "raylet/raylet", "gcs/gcs_server")
    title = _title(process)
    process.kill()
    _confirm(lambda: _gone(process))
    return f"{title} was killed"


def freeze(scene, rng):
    """SIGSTOP of an actor, a server or a worker, for good."""
    process = _victim(scene, rng, *ACTORS)
    title = _title(process)
    process.suspend()
    _confirm(lambda: process.status() == psutil.STATUS_STOPPED)
    return f"{title} was frozen"


def full_disk(scene, rng):
    """The disk is full for a few seconds."""
    ballast = scene.folder / "disk" / "ballast"
    try:
        with ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
    except OSError as error:
        full = error.strerror
    time.sleep(rng.uniform(2, 6))
    ballast.unlink()
    return f"the disk was full ({full})"


def failing_storage(scene, rng):
    """For a few seconds the bucket of a study cannot be reached, or the folder of a run is not there."""
    away = rng.uniform(2, 12)
    if scene.doorway:
        scene.doorway.shut()
        _confirm(lambda: not _accepts(scene.doorway.port))
        time.sleep(away)
        scene.doorway.open()
        _confirm(lambda: _accepts(scene.doorway.port))
        return f"the bucket could not be reached for {away:.0f} s"
    elsewhere = scene.out.with_name("elsewhere")
    scene.out.rename(elsewhere)
    time.sleep(away)
    for k in range(100):  # begun anew by somebody: as with a mount that comes back, theirs is hidden by ours
        if scene.out.exists():
            scene.out.rename(scene.out.with_name(f"hidden{k}"))
        with suppress(OSError):  # or begun once more since we looked
            elsewhere.rename(scene.out)
        if not elsewhere.exists():
            break
    return f"the folder was away for {away:.0f} s"


def _accepts(port):
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def damage(scene, rng):
    """The driver is killed, and a file of a run is cut or gets a wrong byte before the command is given again."""
    scene.process.kill()
    scene.process.wait()
    scene.end(*ACTORS)  # without their driver, they may have ended by themselves
    names = ("rounds.jsonl", "checkpoint.npz", "schema.json")
    files = [path for name in names for path in scene.out.rglob(name) if path.stat().st_size]
    if not files:
        raise NotInjectedError
    path = rng.choice(files)
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content))
    if rng.random() < 0.5:
        path.write_bytes(content[:at])
        return f"{path.name} was cut at {at}"
    content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return f"{path.name} got a wrong bit at {at}"


def memory(scene, rng):
    """Other processes take so much memory that Ray kills workers."""
    used = psutil.virtual_memory()
    size = int(used.total * MEMORY_THRESHOLD - (used.total - used.available)) + (3 << 29)
    before = {process.pid for process in scene.processes(*ACTORS)}
    hold = f"import time; held = bytearray({max(size, 1 << 29)}); time.sleep({rng.uniform(4, 8)})"
    subprocess.run([sys.executable, "-c", hold], check=True)
    gone = before - {process.pid for process in scene.processes(*ACTORS)}
    if not gone:
        raise NotInjectedError
    return f"{size >> 20} MB were taken, and {len(gone)} of {len(before)} workers ended"


MEMORY_THRESHOLD = 0.6
"""Of the machine's memory, above which Ray kills workers in these scenes."""


def lost_machine(scene, rng):
    """The second machine of the cluster is lost, with all its processes, and comes back after a while."""
    below = psutil.Process(scene.second.pid).children(recursive=True)
    os.killpg(scene.second.pid, signal.SIGKILL)
    for process in below:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    scene.second.wait()
    time.sleep(rng.uniform(1, 5))
    scene.start_second()
    return f"a machine with {len(below)} processes was lost, and is back"


KINDS = {
    "kill": kill,
    "freeze": freeze,
    "full disk": full_disk,
    "failing storage": failing_storage,
    "damage": damage,
    "memory": memory,
    "lost machine": lost_machine,
}
