"""cluster/gpu.yaml for real, but for the cloud: `ray up`, autoscaler v2 and the file's own kinds of machines.

Only what needs a cloud or a GPU is replaced: provider, login, image, the check for CUDA, and how long is waited.
"""

import csv
import sys

import pytest
import yaml

from tests.cluster.cloud import Cloud
from tests.cluster.hosts import ROOT, Hosts, lacking
from tests.cluster.laptop import URL, Laptop, wait_until
from tests.cluster.validation import CUDA_CHECK, IDLE, validate
from tests.conftest import missing

pytestmark = pytest.mark.cluster

STUDY = """
base: {nodes: 10, samples_per_node: 100, epochs: 1, rounds: 150, fraction: 0.3, slow_fraction: 1.0, slow_seconds: 0.1}
seeds: 1-2
cpus_per_trial: 4
gpus_per_trial: 0.5
cpu_fallback: true
"""
RUN = ("run", "--nodes", "8", "--samples-per-node", "20", "--epochs", "1", "--rounds", "2")
SHARES = ("--actors", "2", "--gpus-per-actor", "0.5", "--cpu-fallback")
WORDS = "There is no Spot capacity available that matches your request."
IDLE_MINUTES, IDLE_HOURS = 0.4, 0.016


@pytest.fixture
def hosts(tmp_path_factory):
    if reason := lacking():
        missing(reason)
    folder = tmp_path_factory.mktemp("cloud")
    image = f"export PATH={sys.prefix}/bin:$PATH PYTHONPATH={folder}/shared RAY_prestart_worker_first_driver=0\n"
    with Hosts(folder, bashrc=image, installed=False) as hosts:
        yield hosts


@pytest.fixture
def cloud(hosts):
    cloud = Cloud(hosts)
    yield cloud
    cloud.close()


@pytest.fixture
def laptop(hosts, cloud):
    laptop = Laptop(hosts, PYTHONPATH=str(hosts.shared))
    text = (ROOT / "cluster" / "gpu.yaml").read_text().replace(f"# - {IDLE}4", f"- {IDLE}{IDLE_HOURS}")
    config = validate(text) | yaml.safe_load(text)  # with Ray's defaults for AWS
    assert config["head_start_ray_commands"][-1].startswith(IDLE)
    config |= {"provider": cloud.provider, "docker": {}, "initialization_commands": []}
    config["idle_timeout_minutes"] = IDLE_MINUTES
    config["worker_start_ray_commands"].remove(CUDA_CHECK)
    laptop.write("s.yaml", STUDY)
    laptop.write_cluster_file("gpu.yaml", config)
    yield laptop
    laptop.close()


def test_from_rest_to_work_and_back_to_nothing(hosts, cloud, laptop):
    laptop.run("ray", "get-auth-token", "--generate")
    laptop.run("ray", "up", "--yes", "--no-config-cache", "cluster/gpu.yaml", within=600)
    assert list(cloud.kinds().values()) == ["head"], "a cluster at rest"
    laptop.open_dashboard("gpu.yaml")
    a_run_waits_for_a_machine_and_says_why_it_does_not_come(hosts, cloud, laptop)
    a_study_survives_a_frozen_machine(hosts, cloud, laptop)
    idle_machines_go_and_then_the_head(cloud)


def a_run_waits_for_a_machine_and_says_why_it_does_not_come(hosts, cloud, laptop):
    cloud.refuse_next("gpu-spot", "InsufficientInstanceCapacity", WORDS)
    out = str(hosts.shared / "first")
    said = laptop.run(*laptop.fedpns(*RUN, *SHARES, "--submit", URL, "--out", out), within=600)
    assert "waiting for machines for 2 actors, 0.5 GPU each" in said, said
    assert "1 could not be started at " in said and f"(InsufficientInstanceCapacity): {WORDS}" in said, said
    assert "the machines are there, after " in said and cloud.refused == 1, said
    _, (_, kind, config), *_ = cloud.started
    assert kind == "gpu-spot" and len(cloud.started) == 2, cloud.started
    assert config["InstanceType"] == "g5.2xlarge" and config["InstanceMarketOptions"] == {"MarketType": "spot"}


def a_study_survives_a_frozen_machine(hosts, cloud, laptop):
    out = hosts.shared / "results"
    study = laptop.start(*laptop.fedpns("study", "s.yaml", "--submit", URL, "--out", str(out)))

    def where():
        return {path.parent.name: path.read_text() for path in (out / "trials").glob("*/.machine")}

    def spot_machines():
        return [machine for machine, kind in cloud.kinds().items() if kind == "gpu-spot"]

    wait_until(lambda: len(where()) == 2, 600, "both trials have begun")
    before, frozen = where(), spot_machines()
    assert frozen and set(cloud.kinds().values()) == {"head", "gpu-spot"}, "spot machines first"
    for machine in frozen:  # the trials fit on one, and run on one of these
        hosts.freeze(machine)
    wait_until(lambda: not set(frozen) & set(cloud.machines), 400, "frozen machines are given up, and terminated")
    said, _ = study.communicate(timeout=600)
    assert study.returncode == 0 and "was lost (1 of at most 20): it resumes elsewhere" in said, said
    rows = list(csv.DictReader(laptop.run("cat", "runs/s/study.csv").splitlines()))
    assert [row["status"] for row in rows] == ["done"] * 2
    assert [name for name, machine in where().items() if machine != before[name]], "done by another machine"


def idle_machines_go_and_then_the_head(cloud):
    wait_until(lambda: not cloud.machines, 500, "a forgotten cluster ends itself")
    *workers, head = cloud.ended
    assert {ended.kind for ended in workers} == {"gpu-spot"} and head.kind == "head", cloud.ended
    assert [ended.by for ended in workers][:2] == ["monitor.py"] * 2 and head.by == "idle.py", cloud.ended
