"""A cluster at rest: a head without cores, no workers yet, and a study that fits on machines that may be started."""

import pytest
import yaml

from fedpns_ray import InputError
from fedpns_ray.doctor.cluster import examine_cluster
from fedpns_ray.runtime import ray_private
from fedpns_ray.runtime.session import machines, machines_to_come
from fedpns_ray.study.packing import holds, pack
from fedpns_ray.study.study_file import read_study
from tests.cluster.validation import ROOT, validate


@pytest.fixture(scope="module")
def at_rest():
    """The head of cluster/gpu.yaml, as `ray up` starts it: by its resources and the name of its kind."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_NODE_TYPE_NAME", "head")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def bootstrap(tmp_path, monkeypatch):
    """What `ray up` leaves on the head."""
    path = tmp_path / "ray_bootstrap_config.yaml"
    monkeypatch.setattr(ray_private, "BOOTSTRAP", path)

    def leave(**changes):
        path.write_text(yaml.safe_dump(validate((ROOT / "cluster/gpu.yaml").read_text()) | changes))

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
    assert [(m.name, m.cpus, m.gpus) for m in coming] == [("gpu-spot", 8, 1)] * 4
    packing = pack(study, machines(whole=True) + coming)
    assert packing.at_once == 16 and not holds(machines(whole=True), packing) and holds(coming, packing)
    (finding,) = (f for f in examine_cluster("auto") if f.what == "machines")
    assert finding.ok and "4 more may be started" in finding.found

    bootstrap(max_workers=3)
    assert len(machines_to_come()) == 3
    monkeypatch.setenv("RAY_NODE_TYPE_NAME", "gpu-spot")
    worker = at_rest.add_node(num_cpus=8, num_gpus=1)
    assert len(machines_to_come()) == 2
    at_rest.remove_node(worker)
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
    assert [(m.name, m.cpus, m.gpus, m.memory) for m in machines_to_come()] == [("gpu", 8, 1, 28 * 2**30)] * 4
