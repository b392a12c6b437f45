"""KubeRay's manifests: by the schemas of its resources, closed to unknown fields, and in the shell that KubeRay builds.

Kubernetes drops a field that it does not know, with no more than a warning: a mistyped limit is no limit.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.cluster.validation import ROOT
from tests.conftest import missing

MANIFESTS = {"raycluster.yaml": "ray.io_rayclusters.yaml", "rayjob.yaml": "ray.io_rayjobs.yaml"}
"""Manifest → the definition of its resource, a file of KubeRay's releases (helm-chart/kuberay-operator/crds)."""
DEFINITIONS = Path(os.environ.get("FEDPNS_KUBERAY", ROOT.parent / "shared" / "kuberay"))
NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = {
    "type": "object",
    "properties": {"name": NAME, "namespace": NAME, "labels": STRINGS, "annotations": STRINGS},
    "required": ["name"],
}


def closed(schema):
    """The same schema, in which an object may have the properties that are described and no others."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    described = isinstance(schema.get("properties"), dict) and "type" in schema
    return {"additionalProperties": False, **inner} if described else inner


@cache
def validator(definition: str):
    path = DEFINITIONS / definition
    if not path.exists():
        missing(f"KubeRay's {definition} is not in {DEFINITIONS}; FEDPNS_KUBERAY names another folder")
    spec = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]  # noqa: S506
    (schema,) = (version["schema"]["openAPIV3Schema"] for version in spec["versions"] if version["name"] == "v1")
    schema["properties"] |= {
        "apiVersion": {"const": f"{spec['group']}/v1"},
        "kind": {"const": spec["names"]["kind"]},
        "metadata": METADATA,
    }
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return jsonschema.Draft202012Validator(closed(schema))


def text(manifest):
    return (ROOT / "cluster" / "kuberay" / manifest).read_text()


def objections(manifest, content):
    return [f"{error.json_path}: {error.message}" for error in validator(MANIFESTS[manifest]).iter_errors(content)]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_kubernetes_takes_it_with_every_field_known(manifest):
    assert objections(manifest, yaml.safe_load(text(manifest))) == []


TYPOS = [
    ("apiVersion: ray.io/v1", "apiVersion: ray.io/v1beta1"),
    ("  name: fedpns", "  nmae: fedpns"),
    ("name: fedpns", "name: Fed_PNS"),
    ("rayVersion:", "rayVerison:"),
    ('rayVersion: "2.60.0"', "rayVersion: 2.6"),
    ("mode: token", "mode: tokens"),
    ("secretName:", "secret:"),
    ("enableInTreeAutoscaling: true", 'enableInTreeAutoscaling: "yes"'),
    ("idleTimeoutSeconds: 600", "idleTimeoutSeconds: ten minutes"),
    ("idleTimeoutSeconds:", "idleTimeoutMinutes:"),
    ("version: v2", "version: v3"),
    ("serviceType:", "servicetype:"),
    ("rayStartParams: {num-cpus", "rayStartParam: {num-cpus"),
    ('num-cpus: "0"', "num-cpus: 0"),
    ("maxReplicas: 4", "maxReplica: 4"),
    ("maxReplicas: 4", "maxReplicas: 4.5"),
    ("groupName: gpu", "group: gpu"),
    ("containers:", "container:"),
    ("command:", "comand:"),
    ("volumeMounts:", "volumeMount:"),
    ("mountPath:", "path:"),
    ("configMap: {name", "configmap: {name"),
    ("memory: 26Gi", "memory: 26 GB"),
    ("containerPort: 6379", 'containerPort: "6379"'),
    ("requests: {cpu", "request: {cpu"),
    ("operator: Exists", "operater: Exists"),
]


@pytest.mark.parametrize("manifest", MANIFESTS)
@pytest.mark.parametrize(("right", "wrong"), TYPOS)
def test_typos_are_caught(manifest, right, wrong):
    assert right in text(manifest)
    assert objections(manifest, yaml.safe_load(text(manifest).replace(right, wrong)))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("shutdownAfterJobFinishes:", "shutdownAfterJobFinish:"),
        ("ttlSecondsAfterFinished: 60", "ttlSecondsAfterFinished: 60s"),
        ("rayClusterSpec:", "clusterSpec:"),
        ("backoffLimit:", "backOffLimit:"),
    ],
)
def test_typos_in_the_job_are_caught(right, wrong):
    assert right in text("rayjob.yaml")
    assert objections("rayjob.yaml", yaml.safe_load(text("rayjob.yaml").replace(right, wrong)))


# --- the shell ------------------------------------------------------------------------------------------------------


def containers(manifest):
    spec = yaml.safe_load(text(manifest))["spec"]
    spec = spec.get("rayClusterSpec", spec)
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        yield from group["template"]["spec"]["containers"]


def as_kuberay_starts_it(container):
    """BuildPod in KubeRay's pod.go: the words with blanks around them, `&&`, the limit on files, `;`, `ray start`."""
    command = "".join(f" {word} " for word in container["command"])
    assert "ray start" not in command, "else KubeRay would leave `ray start` to us"
    return f"{command} && ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; ray start --block"


@pytest.mark.parametrize("manifest", MANIFESTS)
@pytest.mark.parametrize("fails", ["", "requirements.txt", "fedpns.zip", "doctor.cuda"])
def test_ray_starts_only_on_what_was_installed(tmp_path, manifest, fails):
    """With programs that write down how they were called; the one that is called with `fails` fails."""
    (tmp_path / "bin").mkdir()
    for name in ("pip", "python", "ray"):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\necho {name} "$@"\ncase "$*" in *"${{FAILS:-nothing}}"*) exit 3;; esac\n')
        program.chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "FAILS": fails, "RAY_START_ULIMIT_OPEN_FILES": "64"}
    for container in containers(manifest):
        line = as_kuberay_starts_it(container)
        done = subprocess.run(["/bin/bash", "-c", "--", line], env=environment, capture_output=True, text=True)
        broken = bool(fails) and fails in line
        assert ("ray start" in done.stdout) != broken, done.stdout
        assert (done.returncode != 0) == broken
    assert broken == bool(fails), "the worker, which comes last, runs all of it"
