"""A cluster at rest: a head without cores, no workers yet, and a study that fits on machines that may be started."""

import json
import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
import yaml
from ray.core.generated.autoscaler_pb2 import AutoscalingState

from fedpns_ray import Experiment, InputError, Layout, run
from fedpns_ray.api import Interrupted
from fedpns_ray.doctor.cluster import examine_cluster
from fedpns_ray.errors import LostError
from fedpns_ray.records.storage import Storage
from fedpns_ray.runtime import arrivals, ray_private
from fedpns_ray.runtime.session import machines, machines_to_come
from fedpns_ray.study import engine
from fedpns_ray.study.packing import holds, pack
from fedpns_ray.study.study_file import read_study
from tests.cluster.validation import ROOT, validate


@pytest.fixture(scope="module")
def at_rest():
    """The head of cluster/gpu.yaml, as `ray up` starts it: by its resources and the name of its kind."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_NODE_TYPE_NAME", "head")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def remove(cluster, worker):
    """Until the cluster knows, too: the next test must find it at rest."""
    cluster.remove_node(worker)
    cluster.wait_for_nodes(timeout=120)


@pytest.fixture
def bootstrap(tmp_path, monkeypatch):
    """What `ray up` leaves on the head."""
    path = tmp_path / "ray_bootstrap_config.yaml"
    monkeypatch.setattr(ray_private, "BOOTSTRAP", path)

    def leave(**changes):
        path.write_text(yaml.safe_dump(validate((ROOT / "cluster/gpu.yaml").read_text()) | changes, sort_keys=False))

    return leave


@pytest.fixture
def study(tmp_path):
    (tmp_path / "s.yaml").write_text("base: {rounds: 2}\ngpus_per_trial: 0.25\n")
    return read_study(tmp_path / "s.yaml")


def test_machines_that_may_be_started_count(at_rest, bootstrap, study, monkeypatch):
    with pytest.raises(InputError, match=r"do not fit on any machine"):
        pack(study, machines(whole=True) + machines_to_come())
    bootstrap()
    coming = machines_to_come()
    assert [(m.name, m.cpus, m.gpus) for m in coming] == [("gpu-spot", 8, 1)] * 3 + [("gpu-on-demand", 8, 1)]
    packing = pack(study, machines(whole=True) + coming)
    assert packing.at_once == 16 and not holds(machines(whole=True), packing) and holds(coming, packing)
    (finding,) = (f for f in examine_cluster("auto") if f.what == "machines")
    assert finding.ok and "4 more may be started" in finding.found

    bootstrap(max_workers=3)
    assert len(machines_to_come()) == 3
    monkeypatch.setenv("RAY_NODE_TYPE_NAME", "gpu-spot")
    worker = at_rest.add_node(num_cpus=8, num_gpus=1)
    assert len(machines_to_come()) == 2
    remove(at_rest, worker)
    bootstrap(head_node_type="gpu-on-demand")  # another cluster's file
    assert machines_to_come() == []


def test_kubernetes_is_asked_for_its_resource(at_rest, tmp_path, monkeypatch):
    """All but the wire: what Kubernetes would send is the manifest."""
    from ray.autoscaler._private.kuberay import node_provider

    class Kubernetes:
        def __init__(self, namespace):
            assert namespace == "mine"

        def get(self, path):
            assert path == "rayclusters/fedpns"
            manifest = yaml.safe_load((ROOT / "cluster/kuberay/raycluster.yaml").read_text())
            manifest["metadata"]["namespace"] = "mine"
            return manifest

    (tmp_path / "namespace").write_text("mine")
    monkeypatch.setattr(ray_private, "NAMESPACE", tmp_path / "namespace")
    monkeypatch.setattr(node_provider, "KubernetesHttpApiClient", Kubernetes)
    monkeypatch.setenv("RAY_CLUSTER_NAME", "fedpns")
    assert machines_to_come() == []  # this head is of another kind
    monkeypatch.setattr("ray.autoscaler._private.kuberay.autoscaling_config._HEAD_GROUP_NAME", "head")
    assert [(m.name, m.cpus, m.gpus, m.memory) for m in machines_to_come()] == [("gpu", 7, 1, 26 * 2**30)] * 4


E = Experiment(nodes=8, fraction=0.5, samples_per_node=40, epochs=1, rounds=3)
QUARTERS = Layout(actors=2, gpus_per_actor=0.25, cpu_fallback=True)
NO_CAPACITY = "InsufficientInstanceCapacity: there is no Spot capacity available that matches your request"


def autoscaler_reports(version, **state):
    """What the second autoscaler sends to the control store; the versions must rise."""
    now = int(time.time())
    report = AutoscalingState(last_seen_cluster_resource_state_version=1, autoscaler_state_version=version)
    for kind, count in state.get("asked", {}).items():
        report.pending_instance_requests.add(ray_node_type_name=kind, count=count, request_ts=now)
    for kind, reason in state.get("failed", {}).items():
        report.failed_instance_requests.add(ray_node_type_name=kind, count=1, failed_ts=now, reason=reason)
    client = ray._raylet.GcsClient(ray.get_runtime_context().gcs_address)
    client.report_autoscaling_state(report.SerializeToString())


def until(log, pattern, within=120):
    deadline = time.monotonic() + within
    while not re.search(pattern, log.text):
        assert time.monotonic() < deadline, log.text
        time.sleep(0.05)


def test_a_run_waits_for_its_machine_and_says_why(at_rest, bootstrap, monkeypatch, caplog):
    bootstrap()
    monkeypatch.setenv("RAY_NODE_TYPE_NAME", "gpu-spot")
    monkeypatch.setattr(arrivals, "ARRIVED_WITHIN", 300.0)
    caplog.set_level(logging.INFO, "fedpns_ray")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, E, layout=QUARTERS, progress=False)
        until(caplog, r"waiting for machines for 2 actors, 0.25 GPU each, \d+ of 300 s: none has been asked for yet")
        autoscaler_reports(1, asked={"gpu-spot": 1})
        until(caplog, "gpu-spot: 1 starting since ")
        autoscaler_reports(2, failed={"gpu-spot": NO_CAPACITY})
        until(caplog, re.escape(f"({NO_CAPACITY})"))
        autoscaler_reports(3)
        worker = at_rest.add_node(num_cpus=8, num_gpus=1)
        result = waiting.result(240)
    assert "gpu-spot: 1 could not be started at " in caplog.text and "the machines are there, after " in caplog.text
    assert result.summary["weights_sha256"] == run(E, progress=False).summary["weights_sha256"]
    remove(at_rest, worker)


def test_the_reason_comes_from_the_autoscalers_log(at_rest, bootstrap, monkeypatch, caplog):
    """The second autoscaler's status says that a launch failed, and not why."""
    bootstrap()
    monkeypatch.setattr(arrivals, "ARRIVED_WITHIN", 300.0)
    caplog.set_level(logging.INFO, "fedpns_ray")
    log = ray_private.logs_folder() / "monitor.log"
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    why = (
        "Node Launch Exception (VcpuLimitExceeded): You have requested more vCPU capacity than your current vCPU limit"
    )
    said = "ERROR node_provider.py:491 -- Failed to launch"
    old = f"2020-01-01 00:00:00,000\t{said} 1 nodes of type gpu-on-demand: {why}\n"
    new = f"{stamp},123\t{said} 3 nodes of type gpu-spot: {why} of 0\n"
    autoscaler_reports(4, failed={"gpu-spot": ""})
    try:
        log.write_text(old + new)
        with ThreadPoolExecutor(1) as pool:
            done = threading.Event()
            waiting = pool.submit(run, E, layout=QUARTERS, progress=False, stop=done.is_set)
            until(caplog, "gpu-spot: 1 could not be started at ")
            until(caplog, re.escape(f"({why} of 0)"))
            done.set()
            with pytest.raises(Interrupted):
                waiting.result(120)
    finally:
        log.unlink()
        autoscaler_reports(5)
    assert "gpu-on-demand" not in caplog.text  # that was long ago


def test_what_no_machine_can_hold_is_refused_at_once(at_rest, bootstrap):
    bootstrap()
    with pytest.raises(InputError, match=r"actors: 40 actors with .* do not fit; .* on \d machines; the nearest that"):
        run(E.but(nodes=200), layout=Layout(actors=40, gpus_per_actor=0.25, cpus_per_actor=1), progress=False)
    began = time.monotonic()
    with pytest.raises(Interrupted):
        run(E, layout=QUARTERS, progress=False, stop=lambda: time.monotonic() - began > 1)


def test_the_wait_has_a_limit_for_runs_and_studies(at_rest, bootstrap, study, tmp_path, monkeypatch):
    bootstrap()
    monkeypatch.setattr(arrivals, "ARRIVED_WITHIN", 2.0)
    with pytest.raises(LostError, match=r"no machine for 2 actors, 0.25 GPU each came within 2 s \("):
        run(E, layout=QUARTERS, progress=False)
    with pytest.raises(LostError, match=r"no machine for 16 trials at once, .* each came within 2 s \("):
        engine.run_study(study, Storage(tmp_path / "o"))


def test_the_first_autoscaler_is_understood(at_rest):
    from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_put

    why = {"category": "MaxSpotInstanceCountExceeded", "description": "Max spot instance count exceeded"}
    known = {"node_type": "gpu", "is_available": False, "last_checked_timestamp": 0.0}
    report = {
        "pending_launches": {"gpu": 2},
        "pending_nodes": [["10.0.0.7", "gpu", "setting-up"]],
        "node_availability_summary": {"node_availabilities": {"gpu": known | {"unavailable_node_information": why}}},
    }
    _internal_kv_put("__autoscaling_status", json.dumps({"autoscaler_report": report}), overwrite=True)
    try:
        said = arrivals.described(ray_private.launches(), {"gpu": 1})
    finally:
        _internal_kv_del("__autoscaling_status")
    quota = "MaxSpotInstanceCountExceeded: Max spot instance count exceeded"
    assert said == f"gpu: 1 up, 2 starting, 1 starting (setting-up), 1 could not be started ({quota})"
