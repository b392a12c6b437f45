"""A Ray cluster as a user starts it: `ray start --head`, with folders and a port of its own."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil

PORTS = range(20_000, 32_000)
"""Nobody else takes one of these before it is used: the system hands out those above, Ray's workers those below."""


def free_port():
    while True:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", random.SystemRandom().choice(PORTS)))
            return s.getsockname()[1]


@contextlib.contextmanager
def ray_head(environment, dashboard=None, labels="test=head"):
    """The head's process and its port; with a dashboard, at this port, jobs can be submitted to it."""
    ray, port = str(Path(sys.executable).with_name("ray")), free_port()
    temp = Path(f"/tmp/fp-{uuid.uuid4().hex[:6]}")  # sockets want a short path
    page = f"--dashboard-port={dashboard}" if dashboard else "--include-dashboard=false"
    head = subprocess.Popen(
        [ray, "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=2", page,
         "--dashboard-agent-listen-port=0", "--min-worker-port=0", "--max-worker-port=0", f"--labels={labels}",
         f"--temp-dir={temp}", "--disable-usage-stats"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for_child(head, "raylet")
        yield head, port
    finally:
        head.terminate()
        try:
            head.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)
            head.wait()
        shutil.rmtree(temp, ignore_errors=True)


def wait_for_child(process, name, within=120):
    deadline = time.monotonic() + within
    while True:
        for child in psutil.Process(process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                if child.name() == name and child.cmdline():  # a program gets its name a moment before its arguments
                    return child
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
