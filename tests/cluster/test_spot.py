"""Spot machines first, and what happens where there are none: Ray's own autoscaler decides by the cluster files."""

import json
import os
import subprocess
import sys
import time

import click
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config
from ray.core.generated.instance_manager_pb2 import Instance

from tests.cluster.scaling import Autoscaler, standing_requests
from tests.cluster.validation import ROOT

CLOUDS = ["gpu.yaml", "gcp.yaml"]


def config(name):
    return yaml.safe_load((ROOT / "cluster" / name).read_text())


@pytest.fixture(params=CLOUDS)
def autoscaler(request):
    return Autoscaler(config(request.param))


def test_spot_first_then_one_on_demand(autoscaler):
    assert autoscaler.starts(trials=1) == {"gpu-spot": 1}
    assert autoscaler.starts(trials=12) == {"gpu-spot": 3}
    assert autoscaler.starts(trials=16) == {"gpu-spot": 3, "gpu-on-demand": 1}
    assert autoscaler.starts(trials=100) == {"gpu-spot": 3, "gpu-on-demand": 1}


def test_a_large_study_advances_while_no_spot_machine_comes(autoscaler):
    """Requests on their way count as machines, so the fourth machine is asked for on demand."""
    assert autoscaler.starts(trials=100, requested=("gpu-spot",) * 3) == {"gpu-on-demand": 1}


def test_ray_does_not_fall_back_by_itself(autoscaler):
    """As cluster/README.md says of Ray 2.60. If this fails, Ray has learned it: say so there."""
    autoscaler.failed("gpu-spot", Instance.ALLOCATION_FAILED)  # no capacity, or no quota
    assert autoscaler.starts(trials=12) == {"gpu-spot": 3}
    autoscaler.failed("gpu-spot", Instance.ALLOCATION_TIMEOUT)  # a machine that came, but never ran Ray
    assert autoscaler.starts(trials=12) == {"gpu-on-demand": 3}


def test_on_demand_machines_come_when_asked_for(autoscaler):
    autoscaler.failed("gpu-spot", Instance.ALLOCATION_FAILED)
    assert autoscaler.starts(trials=12, on_demand=3) == {"gpu-on-demand": 3}
    assert autoscaler.starts(trials=100, on_demand=4) == {"gpu-on-demand": 4}
    assert autoscaler.starts(trials=100, on_demand=1) == {"gpu-on-demand": 1, "gpu-spot": 3}
    assert autoscaler.starts(trials=12, on_demand=1, requested=("gpu-spot",) * 3) == {"gpu-on-demand": 1}


@pytest.mark.parametrize("name", CLOUDS)
def test_without_a_priority_half_of_the_machines_would_be_on_demand(name):
    content = config(name)
    del content["available_node_types"]["gpu-spot"]["priority"]
    assert Autoscaler(content).starts(trials=16) == {"gpu-spot": 2, "gpu-on-demand": 2}


def test_the_second_autoscaler_leaves_a_machine_of_ones_own_out():
    """Why cluster/onprem.yaml switches it off: see docs/clusters.md. If this fails, Ray has mended it: say so there."""
    own = prepare_config(config("onprem.yaml") | {"auth": {"ssh_user": "researcher"}})
    (kind,) = own["available_node_types"].items()
    assert kind[0] == own["head_node_type"] and kind[1]["min_workers"] == kind[1]["max_workers"] == 2
    assert Autoscaler(own).starts(trials=0) == {kind[0]: 1}, "two are listed, and the head is counted as one of them"
    two = {"head": {**kind[1], "min_workers": 0, "max_workers": 0}, "worker": kind[1]}
    own |= {"available_node_types": two, "head_node_type": "head"}
    with pytest.raises(click.ClickException, match="available_node_types is not supported for on-premise"):
        Autoscaler(own)
    elsewhere = own | {"provider": {"type": "external", "module": "any"}}
    assert Autoscaler(elsewhere).starts(trials=0) == {"worker": 2}, "a head of another kind would not be counted"


# --- cluster/on_demand.py on a real cluster, whose machines we start as the autoscaler would --------------------------


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_enable_autoscaler_v2", "1")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        yield cluster
        cluster.shutdown()


def ask(cluster, *arguments):
    environment = os.environ | {"RAY_ADDRESS": cluster.address}
    command = [sys.executable, str(ROOT / "cluster" / "on_demand.py"), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_asks_waits_and_withdraws(cluster, monkeypatch):
    asking = ask(cluster, "1", "--minutes", "0.05")
    said = asking.communicate(timeout=240)
    assert asking.returncode == 1 and "only 0 of 1 joined" in said[1], said
    assert standing_requests(cluster.address) == []

    asking = ask(cluster, "1", "--minutes", "4")
    deadline = time.monotonic() + 120
    while standing_requests(cluster.address) != [({"GPU": 1.0}, 1)]:
        assert time.monotonic() < deadline and asking.poll() is None, asking.communicate()
        time.sleep(0.2)
    kind = config("gpu.yaml")["available_node_types"]["gpu-on-demand"]
    monkeypatch.setenv("RAY_OVERRIDE_LABELS", json.dumps(kind["labels"]))  # as the autoscaler starts Ray on a machine
    cluster.add_node(num_cpus=1, num_gpus=1)
    said = asking.communicate(timeout=240)
    assert asking.returncode == 0 and "all 1 have joined" in said[0], said
    assert standing_requests(cluster.address) == []
