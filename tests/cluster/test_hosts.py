"""Three hosts, the real `ray up cluster/onprem.yaml`, a study sent from a laptop, a machine cut off, nothing left."""

import csv
from pathlib import Path

import pytest
import yaml

from fedpns_ray import load, run
from tests.cluster.hosts import ROOT, Hosts, lacking
from tests.cluster.laptop import URL, Laptop, wait_until
from tests.conftest import missing

pytestmark = pytest.mark.cluster

# Slow nodes: trials that last, and leave the cores of this machine to the hosts.
STUDY = """
base: {nodes: 10, samples_per_node: 100, epochs: 1, rounds: 70, fraction: 0.3, slow_fraction: 1.0, slow_seconds: 0.1}
axes: {strategy: [fedpns, fedavg]}
seeds: 1-3
"""

RAY = ("raylet", "gcs_server")


@pytest.fixture
def hosts(tmp_path_factory):
    if reason := lacking():
        missing(reason)
    with Hosts(tmp_path_factory.mktemp("hosts"), "head", "w1", "w2") as hosts:
        yield hosts


@pytest.fixture
def laptop(hosts):
    laptop, address = Laptop(hosts), hosts.addresses
    laptop.write("s.yaml", STUDY)
    config = yaml.safe_load((ROOT / "cluster" / "onprem.yaml").read_text())
    config["provider"] |= {"head_ip": address["head"], "worker_ips": [address["w1"], address["w2"]]}
    laptop.write_cluster_file("onprem.yaml", config)
    yield laptop
    laptop.close()


def findings(table):
    """The third column of the doctor's table, however narrow it was."""
    rows = [line.split("│") for line in table.splitlines()]
    return " ".join(cells[3].strip() for cells in rows if len(cells) == 6)


class Study:
    """The study on the cluster: its command on the laptop, its folder, and the machines it runs on."""

    def __init__(self, hosts: Hosts, laptop: Laptop):
        self.hosts, self.laptop = hosts, laptop
        self.out = hosts.shared / "results"
        self.submit = laptop.fedpns("study", "s.yaml", "--submit", URL, "--out", str(self.out))

    def ray_on(self, name):
        """Ray's own processes on a machine; commands that only mention them are none."""
        programs = [line.split()[0] for line in self.hosts.processes(name) if line.strip()]
        return [program for program in programs if program.startswith("ray::") or Path(program).name in RAY]

    def where(self):
        """Trial → the machine that it runs on, as its folder says."""
        return {path.parent.name: path.read_text() for path in (self.out / "trials").glob("*/.machine")}

    def examined(self):
        doctor = f"cd ~/fedpns && python -m fedpns_ray doctor --address auto --out {self.out}"
        return findings(self.laptop.run("ray", "exec", "--no-config-cache", "cluster/onprem.yaml", doctor))


def test_up_submit_cut_off_fetch_down(hosts, laptop):
    study = Study(hosts, laptop)
    laptop.run("ray", "get-auth-token", "--generate")
    laptop.run("ray", "up", "--yes", "--no-config-cache", "cluster/onprem.yaml")
    tunnel = study.laptop.open_dashboard("onprem.yaml")
    wait_until(lambda: study.ray_on("w1") and study.ray_on("w2"), 240, "all machines join")
    the_doctor_is_content(study)
    the_study_starts_and_the_laptop_is_closed(study)
    before, tunnel = the_study_survives_a_lost_machine_and_a_lost_connection(study, tunnel)
    all_trials_are_done_and_fetched(study, before)
    laptop.stop(tunnel)
    ray_down_leaves_nothing(study)


def the_doctor_is_content(study):
    seen = []
    wait_until(lambda: "3 with " in (seen.append(study.examined()) or seen[-1]), 90, "all machines are seen")
    for finding in ("required by every machine", "every machine can read and write it", "everywhere"):
        assert finding in seen[-1], seen[-1]


def the_study_starts_and_the_laptop_is_closed(study):
    first = study.laptop.start(*study.submit)
    wait_until(lambda: len(set(study.where().values())) == 3, 400, "all three machines run trials")
    assert "sent as fedpns-s-" in study.laptop.stop(first)


def the_study_survives_a_lost_machine_and_a_lost_connection(study, tunnel):
    """The laptop is opened again, a machine is cut off, and the laptop's network changes."""
    second = study.laptop.start(*study.submit)
    heard = [""]
    while "which is already running there" not in heard[-1]:
        heard.append(second.stdout.readline())
        assert heard[-1], "".join(heard)
    before = study.where()
    study.hosts.cut("w2")
    study.laptop.stop(tunnel)
    tunnel = study.laptop.open_dashboard("onprem.yaml")
    wait_until(lambda: moved(study, before), 300, "its trial resumes elsewhere")
    assert study.ray_on("w2"), "the machine that was cut off does not know"
    study.hosts.plug_in("w2")  # it comes back in the midst of a trial that is no longer its own
    said, _ = second.communicate(timeout=600)
    assert second.returncode == 0 and "study.csv" in said, said
    assert "".join([*heard, said]).count("s: 6 trials") == 1, said
    return before, tunnel


def moved(study, before):
    """Trials that another machine runs, or has run."""
    after = study.where()
    return [name for name in before if after[name] != before[name]]


def all_trials_are_done_and_fetched(study, before):
    rows = list(csv.DictReader(study.laptop.run("cat", "runs/s/study.csv").splitlines()))
    assert len(rows) == 6 and {row["status"] for row in rows} == {"done"}
    lost = moved(study, before)
    assert lost, "done, and not by the machine that was cut off"
    for name in lost:
        whole = load(study.out / "trials" / name)  # checks every file by the summary
        e = whole.experiment.but(slow_fraction=0.0)
        assert whole.summary["weights_sha256"] == run(e, progress=False).summary["weights_sha256"], name
    assert {"report.html", "curves.png", "table.md"} <= set(study.laptop.run("ls", "runs/s").split())
    assert len(list((study.out / "trials").iterdir())) == 6


def ray_down_leaves_nothing(study):
    study.laptop.run("ray", "down", "--yes", "cluster/onprem.yaml")
    wait_until(lambda: not study.ray_on("head"), 120, "`ray down` ends the head")
    wait_until(lambda: not study.ray_on("w1") and not study.ray_on("w2"), 240, "`ray down` leaves nothing")
