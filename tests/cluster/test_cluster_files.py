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
    assert sum(kind["max_workers"] for kind in workers or kinds.values()) >= config["max_workers"] > 0


MISTAKES = [
    *((name, "idle_timeout_minutes:", "idle_timeout_minute:", "idle_timeout_minute") for name in CLOUDS),
    *((name, "CPU: 8, GPU: 1", "CPU: 8, GPU: 0.5", "0.5 is not of type 'integer'") for name in CLOUDS),
    *((name, "resources: {CPU: 0}", "resources: {CPU: 2}", "head must take no trials") for name in CLOUDS),
    *((name, "head_node_type: head", "head_node_type: haed", "head_node_type") for name in CLOUDS),
    *(
        (name, "min_workers: 0\n    max_workers: 3", "min_workers: 1\n    max_workers: 3", "0 at rest")
        for name in CLOUDS
    ),
    ("gpu.yaml", "GroupName: fedpns", "GroupName: fedpns\n    IpPermissions: [{FromPort: 8265}]", "ssh alone"),
    ("gpu.yaml", "cache_stopped_nodes: False", "cache_stopped_nodes: True", "ended, not stopped"),
    *((name, "ray:2.60.0-py311-gpu", "ray:latest-gpu", "image must be") for name in FILES if name != "onprem.yaml"),
    *((name, "127.0.0.1", "0.0.0.0", "dashboard must listen on the head") for name in FILES[:3]),
    *(
        (name, "ray:2.60.0-py311-cpu", "ray:2.60.0-py311-gpu", "image must be")
        for name in FILES
        if name != "onprem.yaml"
    ),
    *((name, "~/.ray: ~/.ray", "~/.ray/auth_token: ~/.ray/auth_token", "as folders") for name in FILES[:3]),
    *((name, "~/fedpns/fedpns_ray: fedpns_ray", "~/fedpns: .", "as folders") for name in FILES[:3]),
    *((name, "  - python -m fedpns_ray.doctor.cuda", "  - nvidia-smi", "CUDA must be checked") for name in CLOUDS),
    *((name, "python -m fedpns_ray.doctor.cuda", "true", "CUDA must be checked") for name in FILES[3:]),
    *((name, 'cpu: "7"', 'cpu: "8"', "8 vCPU") for name in FILES[3:]),
    *((name, "export RAY_AUTH_MODE=token", "true", "RAY_AUTH_MODE") for name in FILES[:3]),
    *((name, "cluster_name: fedpns", f"cluster_name: fedpns # {'0a' * 32}", "secret") for name in FILES[:3]),
    ("onprem.yaml", "worker_ips: [", "worker_ip: [", ""),
    ("gpu.yaml", "region: us-west-2", "region: us-west-22", "no such region"),
    ("gpu.yaml", "cache_stopped_nodes:", "cache_stopped_node:", "these keys are due"),
    ("gpu.yaml", "InstanceType: g5", "InstanceTyp: g5", 'Unknown parameter in input: "InstanceTyp"'),
    ("gpu.yaml", "InstanceMarketOptions:", "InstanceMarketOption:", '"InstanceMarketOption"'),
    ("gpu.yaml", "VolumeSize:", "VolumeSze:", '"VolumeSze"'),
    ("gpu.yaml", "DeleteOnTermination: True", "DeleteOnTermination: False", "disk must go"),
    ("gpu.yaml", "resolve:ssm", "resolv:ssm", "image is an id, or"),
    ("gpu.yaml", "boto3==", "boto==", "the head needs boto3"),
    ("gcp.yaml", "project_id:", "project:", "these keys are due"),
    ("gcp.yaml", "machineType: g2", "machinetype: g2", "unknown field machinetype"),
    ("gcp.yaml", "provisioningModel: SPOT", "provisioningModel: SPOTT", "SPOTT is not SPOT"),
    ("gcp.yaml", "diskSizeGb: 120", 'diskSizeGb: "120"', "not of type int"),
    ("gcp.yaml", "            diskType:", "            # diskType:", "the kind pd-standard does not go with"),
    ("gcp.yaml", "diskTypes/pd-balanced", "diskTypes/pd-standard", "does not go with every machine"),
    ("gcp.yaml", "availability_zone: us-central1-a", "availability_zone: us-central1-b", "in this zone"),
    ("gcp.yaml", "autoDelete: true", "autoDelete: false", "disk must go"),
    *((name, "market-type: on-demand", "market-type: spot", "on which market") for name in CLOUDS),
    *((name, "CPU: 8", "CPUs: 8", "unknown resources") for name in CLOUDS),
    *((name, "timeout 600", "timout 600", "unknown program timout") for name in CLOUDS),
    *((name, "failure_threshold", "failure_treshold", "is not a flag of Ray") for name in FILES[:3]),
    *((name, "--address=", "--adress=", "no option --adress") for name in FILES[:3]),
    *((name, "--port=6379", "--port=6380", "the head's port") for name in FILES[:3]),
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
    for path in Path(FOLDER).rglob("*"):
        if path.is_file() and path.suffix not in (".md", ".dockerignore", ".pyc"):
            assert str(path.relative_to(ROOT)) in readme, path
