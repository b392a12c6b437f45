"""The user's machine among the hosts: it has a clone, and nothing of ours is installed there."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import yaml

from tests.cluster.hosts import ROOT, Hosts

CLONE = Path.home() / "clone"
URL = "http://127.0.0.1:8265"


class Laptop:
    """Runs commands in the clone; `environment` is the user's own."""

    def __init__(self, hosts: Hosts, **environment: str):
        self._hosts, self._environment = hosts, environment
        self._started: list[subprocess.Popen] = []
        self.run("rsync", "-a", "--exclude=.git", "--exclude=.venv", "--exclude=runs", f"{ROOT}/", CLONE, folder="/")

    def start(self, *command, folder=CLONE):
        line = self._hosts.command("laptop", *command, folder=folder, **self._environment)
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self._started.append(process)
        return process

    def stop(self, process):
        """Kill a process and all that it has started; returns its output."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return "" if process.stdout.closed else process.communicate()[0]

    def close(self):
        for process in self._started:
            self.stop(process)

    def run(self, *command, folder=CLONE, within=400, code=0):
        process = self.start(*command, folder=folder)
        try:
            out, _ = process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{command} took more than {within} s: {self.stop(process)}") from None
        assert process.returncode == code, out
        return out

    def write(self, name, text):
        subprocess.run(
            self._hosts.command("laptop", "tee", CLONE / name),
            input=text,
            text=True,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def write_cluster_file(self, name, config):
        """The file cluster/NAME, with the key of these hosts."""
        config["auth"] = {"ssh_user": "root", "ssh_private_key": "~/.ssh/id_ed25519"}
        self.write(f"cluster/{name}", yaml.safe_dump(config, sort_keys=False))

    def open_dashboard(self, name):
        """The tunnel to the head of cluster/NAME, once it answers."""
        tunnel = self.start("ray", "dashboard", "--no-config-cache", f"cluster/{name}")
        ask = r"exec 3<>/dev/tcp/127.0.0.1/8265 && printf 'GET /api/version HTTP/1.0\r\n\r\n' >&3 && grep -q HTTP <&3"
        line = self._hosts.command("laptop", "timeout", "10", "bash", "-c", ask)
        wait_until(lambda: not subprocess.run(line, capture_output=True).returncode, 300, "the dashboard answers")
        return tunnel

    def fedpns(self, *arguments):
        return "python", "-m", "fedpns_ray", *arguments


def wait_until(holds, within, what):
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        time.sleep(0.5)
