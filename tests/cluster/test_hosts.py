"""Three hosts, the real `ray up cluster/onprem.yaml`, a study sent from a laptop, a machine cut off, everything gone at the end."""

import contextlib
import csv
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.cluster.hosts import ROOT, Hosts, lacking
from tests.conftest import missing

pytestmark = pytest.mark.cluster

# Slow nodes: trials that last, and leave the cores of this machine to the hosts.
STUDY = """
base: {nodes: 10, samples_per_node: 100, epochs: 1, rounds: 70, fraction: 0.3, slow_fraction: 1.0, slow_seconds: 0.1}
axes: {strategy: [fedpns, fedavg]}
seeds: 1-3
"""
CLONE = Path.home() / "clone"
URL = "http://127.0.0.1:8265"


@pytest.fixture
def hosts(tmp_path_factory):
    if reason := lacking():
        missing(reason)
    with Hosts(tmp_path_factory.mktemp("hosts"), "head", "w1", "w2") as hosts:
        yield hosts


@pytest.fixture
def laptop(hosts):
    laptop = Laptop(hosts)
    yield laptop
    laptop.close()


class Laptop:
    """Whoever sits before it has a clone and types commands there."""

    def __init__(self, hosts: Hosts):
        self._hosts = hosts
        self._started: list[subprocess.Popen] = []
        self.run("rsync", "-a", "--exclude=.git", "--exclude=.venv", "--exclude=runs", f"{ROOT}/", CLONE, folder="/")
        self.write("s.yaml", STUDY)
        config = yaml.safe_load((ROOT / "cluster" / "onprem.yaml").read_text())
        address = hosts.addresses
        config["provider"] |= {"head_ip": address["head"], "worker_ips": [address["w1"], address["w2"]]}
        config["auth"] = {"ssh_user": "root", "ssh_private_key": "~/.ssh/id_ed25519"}
        self.write("cluster/onprem.yaml", yaml.safe_dump(config))

    def start(self, *command, folder=CLONE):
        line = self._hosts.command("laptop", *command, folder=folder)
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self._started.append(process)
        return process

    def stop(self, process):
        """At once, with all that it has started; gives back what it said."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return "" if process.stdout.closed else process.communicate()[0]

    def close(self):
        for process in self._started:
            self.stop(process)

    def run(self, *command, folder=CLONE, within=150, code=0):
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

    def fedpns(self, *arguments):
        return "python", "-m", "fedpns_ray", *arguments


def wait_until(holds, within, what):
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        time.sleep(0.5)


def findings(table):
    """The third column of the doctor's table, however narrow it was."""
    rows = [line.split("│") for line in table.splitlines()]
    return " ".join(cells[3].strip() for cells in rows if len(cells) == 6)


def test_up_submit_cut_off_fetch_down(hosts, laptop):
    out = str(hosts.shared / "results")
    submit = laptop.fedpns("study", "s.yaml", "--submit", URL, "--out", out)

    def ray_on(name):
        return [line for line in hosts.processes(name) if "raylet" in line or "gcs_server" in line or "ray::" in line]

    def said(command):
        return laptop.run("ray", "exec", "--no-config-cache", "cluster/onprem.yaml", command)

    laptop.run("ray", "get-auth-token", "--generate")
    laptop.run("ray", "up", "--yes", "--no-config-cache", "cluster/onprem.yaml")
    tunnel = laptop.start("ray", "dashboard", "--no-config-cache", "cluster/onprem.yaml")

    doctor = "cd ~/fedpns && python -m fedpns_ray doctor --address auto --out " + out
    wait_until(lambda: ray_on("w1") and ray_on("w2"), 90, "all machines join")
    examined = []
    wait_until(
        lambda: "3 with " in (examined.append(findings(said(doctor))) or examined[-1]), 90, "all machines are seen"
    )
    for finding in ("asked for by every machine", "read and written by every machine", "everywhere"):
        assert finding in examined[-1], examined[-1]

    def where():
        """Trial → the machine that it runs on, as it says in its folder."""
        return {path.parent.name: path.read_text() for path in Path(out, "trials").glob("*/.machine")}

    first = laptop.start(*submit)
    wait_until(lambda: len(set(where().values())) == 3, 150, "all three machines run trials")
    assert "sent as fedpns-s-" in laptop.stop(first)  # the laptop is closed

    second = laptop.start(*submit)  # and opened again
    heard = [""]
    while "which runs there already" not in heard[-1]:
        heard.append(second.stdout.readline())
        assert heard[-1], "".join(heard)
    before = where()
    hosts.cut("w2")
    laptop.stop(tunnel)  # and its network changes
    tunnel = laptop.start("ray", "dashboard", "--no-config-cache", "cluster/onprem.yaml")
    said_there, _ = second.communicate(timeout=200)
    assert second.returncode == 0 and "study.csv" in said_there, said_there
    assert "".join([*heard, said_there]).count("s: 6 trials") == 1, said_there

    rows = list(csv.DictReader(laptop.run("cat", "runs/s/study.csv").splitlines()))
    assert len(rows) == 6 and {row["status"] for row in rows} == {"done"}
    assert ray_on("w2"), "the machine that was cut off does not know"
    assert [name for name in before if where()[name] != before[name]], "and yet its trial is done, elsewhere"
    fetched = laptop.run("ls", "runs/s").split()
    assert {"report.html", "curves.png", "table.md"} <= set(fetched) and len(list(Path(out, "trials").iterdir())) == 6

    laptop.stop(tunnel)
    laptop.run("ray", "down", "--yes", "cluster/onprem.yaml")
    assert not ray_on("head")
    hosts.plug_in("w2")
    wait_until(lambda: not ray_on("w1") and not ray_on("w2"), 90, "`ray down` leaves nothing")
