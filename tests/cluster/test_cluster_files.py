"""Every cluster file is one that Ray would take and that keeps the rules; mistakes seeded into copies are caught."""

import re
from pathlib import Path

import click
import jsonschema
import pytest
import yaml

from tests.cluster.validation import ROOT, validate

FOLDER = ROOT / "cluster"
FILES = ["gpu.yaml", "gcp.yaml", "onprem.yaml", "kuberay/raycluster.yaml", "kuberay/rayjob.yaml"]
CLOUDS = FILES[:2]


def test_there_is_no_other_file():
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.yaml")}
    assert there == {*FILES, "aws.cloudformation.yaml"}


@pytest.mark.parametrize("name", FILES)
def test_ray_takes_it(name):
    config = validate((FOLDER / name).read_text())
    kinds = config["available_node_types"]
    workers = [kind for kind_name, kind in kinds.items() if kind_name != config["head_node_type"]]
    assert sum(kind["max_workers"] for kind in workers or kinds.values()) == config["max_workers"] > 0


MISTAKES = [
    *((name, "idle_timeout_minutes:", "idle_timeout_minute:", "idle_timeout_minute") for name in CLOUDS),
    *((name, "CPU: 8, GPU: 1", "CPU: 8, GPU: 0.5", "0.5 is not of type 'integer'") for name in CLOUDS),
    *((name, "resources: {CPU: 0}", "resources: {CPU: 2}", "head must take no trials") for name in CLOUDS),
    *((name, "head_node_type: head", "head_node_type: haed", "head_node_type") for name in CLOUDS),
    *(
        (name, "min_workers: 0\n    max_workers: 4", "min_workers: 1\n    max_workers: 4", "0 at rest")
        for name in CLOUDS
    ),
    ("gpu.yaml", "GroupName: fedpns", "GroupName: fedpns\n    IpPermissions: [{FromPort: 8265}]", "ssh alone"),
    ("gpu.yaml", "cache_stopped_nodes: False", "cache_stopped_nodes: True", "ended, not stopped"),
    *((name, "ray:2.60.0-py311-gpu", "ray:latest-gpu", "image must be") for name in FILES if name != "onprem.yaml"),
    *((name, "127.0.0.1", "0.0.0.0", "dashboard must listen on the head") for name in FILES[:3]),
    *(
        (name, "~/.ray/auth_token: ~/.ray/auth_token", "~/.ray/auth_token: cluster/token", "token")
        for name in FILES[:3]
    ),
    *((name, "export RAY_AUTH_MODE=token", "true", "RAY_AUTH_MODE") for name in FILES[:3]),
    *((name, '".venv", ', "", "must not be synced") for name in FILES[:3]),
    *((name, "cluster_name: fedpns", f"cluster_name: fedpns # {'0a' * 32}", "secret") for name in FILES[:3]),
    ("onprem.yaml", "worker_ips: [", "worker_ip: [", ""),
    *((name, 'num-cpus: "0"', 'num-cpus: "2"', "head must take no trials") for name in FILES[3:]),
    *((name, "minReplicas: 0", "minReplicas: 1", "0 at rest") for name in FILES[3:]),
    *((name, "maxReplicas: 4", "maxReplica: 4", "unknown fields") for name in FILES[3:]),
    *((name, "nvidia.com/gpu: 1}", "nvidia.com/gpu: 0.5}", "whole GPUs") for name in FILES[3:]),
    *((name, "serviceType: ClusterIP", "serviceType: LoadBalancer", "reachable") for name in FILES[3:]),
    ("kuberay/rayjob.yaml", "shutdownAfterJobFinishes: true", "shutdownAfterJobFinishes: false", "go when"),
]


@pytest.mark.parametrize(("name", "right", "wrong", "message"), MISTAKES)
def test_seeded_mistakes_are_caught(name, right, wrong, message):
    text = (FOLDER / name).read_text()
    assert right in text
    with pytest.raises((ValueError, jsonschema.ValidationError, click.ClickException)) as caught:
        validate(text.replace(right, wrong))
    said = caught.value.message if isinstance(caught.value, jsonschema.ValidationError) else str(caught.value)
    assert message in said


def test_both_manifests_describe_the_same_cluster():
    cluster, job = (yaml.safe_load((FOLDER / name).read_text())["spec"] for name in FILES[3:])
    assert cluster == job["rayClusterSpec"]


def test_cloudformation_names_what_gpu_yaml_uses():
    text = (FOLDER / "aws.cloudformation.yaml").read_text()
    used = set(re.findall(r"IamInstanceProfile: {Name: ([\w-]+)}", (FOLDER / "gpu.yaml").read_text()))
    assert used == set(re.findall(r"InstanceProfileName: ([\w-]+)", text)) and "&" not in text.replace("&&", "")


def test_the_readme_names_every_file():
    readme = (FOLDER / "README.md").read_text()
    for path in Path(FOLDER).rglob("*.yaml"):
        assert str(path.relative_to(ROOT)) in readme, path
