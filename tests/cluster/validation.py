"""Checks cluster files with Ray's own code and our own rules. Like scaling.py, it uses Ray's private names."""

import re
from pathlib import Path
from typing import Any

import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.cluster.cloud_rules import trouble

ROOT = Path(__file__).parent.parent.parent
VERSION = "2.60.0"
WORKER_IMAGE, HEAD_IMAGE = (f"rayproject/ray:{VERSION}-py311-{kind}" for kind in ("gpu", "cpu"))
MOUNTS = {"~/fedpns/fedpns_ray": "fedpns_ray", "~/.ray": "~/.ray"}
PINS = "fedpns/fedpns_ray/requirements.txt"
CUDA_CHECK = "python -m fedpns_ray.doctor.cuda"
IDLE = "python -m fedpns_ray.doctor.idle --hours "
CLUSTER_SPEC = {
    "rayVersion",
    "authOptions",
    "enableInTreeAutoscaling",
    "autoscalerOptions",
    "headGroupSpec",
    "workerGroupSpecs",
}
HEAD_GROUP = {"serviceType", "rayStartParams", "template"}
WORKER_GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
JOB_SPEC = {"entrypoint", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "backoffLimit", "rayClusterSpec"}


def rule(holds: Any, message: str) -> None:
    if not holds:
        raise ValueError(message)


def validate(text: str) -> dict[str, Any]:
    """A cluster file for `ray up` or a manifest for KubeRay; returns the configuration Ray's autoscaler would use."""
    secret_free(text)
    content = yaml.safe_load(text)
    if content.get("kind") == "RayCluster":
        return validate_ray_cluster(content)
    if content.get("kind") == "RayJob":
        return validate_ray_job(content)
    return validate_for_ray_up(content)


def secret_free(text: str) -> None:
    rule(
        not re.search(r"\b[0-9a-f]{32,}\b|AKIA[0-9A-Z]{16}|BEGIN [A-Z ]*PRIVATE KEY", text), "a secret is written here"
    )


def validate_for_ray_up(content: dict[str, Any]) -> dict[str, Any]:
    config = prepare_config(content)
    validate_config(config)
    local = content["provider"]["type"] == "local"
    if local:
        rule("docker" not in content, "machines of one's own take no image")
    else:
        validate_cloud(content)
    rule(content["file_mounts"] == MOUNTS, f"the package and the token must be mounted, as folders: {MOUNTS}")
    rule(PINS in str(content["setup_commands"]), "requirements.txt must be installed")
    head, *after = [line for line in content["head_start_ray_commands"] if line != "ray stop"]
    for command in (head, content["worker_start_ray_commands"][-1]):
        rule("RAY_AUTH_MODE=token" in command, "RAY_AUTH_MODE=token must be exported before ray start")
    rule("--dashboard-host=127.0.0.1" in head, "the dashboard must listen on the head alone")
    rule("--autoscaling-config=~/ray_bootstrap_config.yaml" in head, "the head must know its workers")
    rule(all(IDLE in line for line in after), "after Ray only the watch for idle hours may be started on the head")
    found = list(trouble(content))
    rule(not found, "; ".join(found))
    return config


def validate_cloud(content: dict[str, Any]) -> None:
    images = content["docker"].get("image"), content["docker"].get("head_image")
    rule(images == (WORKER_IMAGE, HEAD_IMAGE), f"the image must be {WORKER_IMAGE}, the head's {HEAD_IMAGE}")
    rule(content["worker_start_ray_commands"][-2] == CUDA_CHECK, "CUDA must be checked before ray start")
    rule(content["idle_timeout_minutes"] <= 15, "idle workers must go soon")
    head = content["head_node_type"]
    for name, kind in content["available_node_types"].items():
        rule(kind.get("min_workers") == 0, f"{name} must be 0 at rest")
        if name == head:
            rule(kind["resources"] == {"CPU": 0} and kind["max_workers"] == 0, "the head must take no trials")
        else:
            rule(kind["resources"].get("GPU", 0) >= 1, f"{name} must have a GPU")
    group = content["provider"].get("security_group", {})
    rule("IpPermissions" not in group, "the security group must open ssh alone, as Ray makes it")
    rule(content["provider"].get("cache_stopped_nodes") in (False, None), "machines must be ended, not stopped")


def validate_ray_cluster(content: dict[str, Any]) -> dict[str, Any]:
    rule(content["apiVersion"] == "ray.io/v1", "apiVersion must be ray.io/v1")
    return validate_ray_cluster_spec(content["metadata"]["name"], content["spec"])


def validate_ray_job(content: dict[str, Any]) -> dict[str, Any]:
    rule(content["apiVersion"] == "ray.io/v1", "apiVersion must be ray.io/v1")
    spec = content["spec"]
    rule(set(spec) <= JOB_SPEC, f"unknown fields: {set(spec) - JOB_SPEC}")
    rule(spec.get("shutdownAfterJobFinishes") is True, "the cluster must go when the study ends")
    rule(
        "--address auto" in spec["entrypoint"] and "--out" in spec["entrypoint"],
        "a study on this cluster, kept elsewhere",
    )
    return validate_ray_cluster_spec(content["metadata"]["name"], spec["rayClusterSpec"])


def validate_ray_cluster_spec(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Checks the names of KubeRay's fields, then runs the code with which Ray's autoscaler reads the resource."""
    groups = spec["workerGroupSpecs"]
    for what, known in (
        (spec, CLUSTER_SPEC),
        (spec["headGroupSpec"], HEAD_GROUP),
        *((g, WORKER_GROUP) for g in groups),
    ):
        rule(set(what) <= known, f"unknown fields: {set(what) - known}")
    rule(spec["rayVersion"] == VERSION, "rayVersion must be the image's")
    rule(spec["authOptions"] == {"mode": "token", "secretName": "fedpns-token"}, "the token must come from the secret")
    rule(spec["enableInTreeAutoscaling"] is True, "workers must come and go")
    rule(spec["headGroupSpec"]["serviceType"] == "ClusterIP", "the dashboard must not be reachable from outside")
    for group, image in ((spec["headGroupSpec"], HEAD_IMAGE), *((group, WORKER_IMAGE) for group in groups)):
        for container in group["template"]["spec"]["containers"]:
            rule(container["image"] == image, f"the image must be {image}")
            limits = container["resources"]["limits"]
            rule(limits == container["resources"]["requests"], "limits must be requests")
            rule(isinstance(limits.get("nvidia.com/gpu", 0), int), "Kubernetes gives whole GPUs only")
            rule(int(limits["cpu"]) < 8, "a pod must fit on a node with 8 vCPU, beside what Kubernetes runs there")
            rule("requirements.txt" in str(container["command"]), "requirements.txt must be installed")
            rule(
                CUDA_CHECK in str(container["command"]) or image == HEAD_IMAGE, "CUDA must be checked before ray start"
            )
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            rule(mounted <= {volume["name"] for volume in group["template"]["spec"]["volumes"]}, "a volume is missing")
    config = _derive_autoscaling_config_from_ray_cr({"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    kinds = config["available_node_types"]
    rule(kinds["headgroup"]["resources"]["CPU"] == 0, "the head must take no trials")
    for worker in kinds.keys() - {"headgroup"}:
        rule(kinds[worker]["min_workers"] == 0, f"{worker} must be 0 at rest")
        rule(kinds[worker]["resources"].get("GPU", 0) >= 1, f"{worker} must have a GPU")
    return config


def bootstrapped_on_aws(config: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """What `ray up` adds to a configuration (security group, key, subnets), and the provider that starts machines."""
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    config = bootstrap_aws(config)
    return config, AWSNodeProvider(config["provider"], config["cluster_name"])
