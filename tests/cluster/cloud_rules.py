"""What Ray does not check in a cluster file until a machine is paid for: what it passes on to a cloud or a shell."""

import mmap
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import ray
from botocore.validate import ParamValidator

PROVIDERS = {
    "aws": {"type", "region", "cache_stopped_nodes", "security_group"},
    "gcp": {"type", "region", "availability_zone", "project_id"},
    "local": {"type", "head_ip", "worker_ips"},
}
PROGRAMS = {"ray", "python", "pip", "export", "grep", "timeout", "sudo", "cmp"}
CLIENTS = {"aws": r"boto3==\d[\d.]+", "gcp": r"google-api-python-client==\d[\d.]+", "local": ""}
"""What Ray's autoscaler imports on the head."""
MARKET = "ray.io/market-type"

INSTANCE = {
    "machineType": str,
    "disks": [
        {
            "boot": bool,
            "autoDelete": bool,
            "type": ("PERSISTENT",),
            "initializeParams": {"diskSizeGb": int, "diskType": str, "sourceImage": str},
        }
    ],
    "metadata": {"items": [{"key": str, "value": str}]},
    "scheduling": {
        "provisioningModel": ("SPOT",),
        "instanceTerminationAction": ("DELETE",),
        "automaticRestart": bool,
        "onHostMaintenance": ("TERMINATE",),
    },
    "serviceAccounts": [{"email": str, "scopes": [str]}],
}
"""The part of Google's `instances.insert` that is used: types, or the only values that are right for a GPU."""


def trouble(content: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a file for `ray up`."""
    provider = content["provider"]
    if set(provider) != PROVIDERS[provider["type"]]:
        yield f"provider: these keys are due: {sorted(PROVIDERS[provider['type']])}"
    if provider["type"] == "aws" and provider.get("region") not in _session().get_available_regions("ec2"):
        yield "provider: no such region"
    if not re.search(CLIENTS[provider["type"]], str(content.get("head_setup_commands"))):
        yield f"head_setup_commands: the head needs {CLIENTS[provider['type']]}"
    for name, kind in content.get("available_node_types", {}).items():
        if unknown := set(kind["resources"]) - {"CPU", "GPU"}:
            yield f"{name}: unknown resources {unknown}"
        if provider["type"] == "aws":
            yield from _aws(name, kind)
        else:
            yield from _google(kind["node_config"], INSTANCE, name)
            yield from _google_disks(kind["node_config"], f"zones/{provider.get('availability_zone')}/diskTypes/", name)
        if name != content["head_node_type"]:
            spot = "spot" in str(kind["node_config"]).lower()
            if kind.get("labels") != {MARKET: "spot" if spot else "on-demand"}:
                yield f"{name}: its label must say on which market it is bought"
    yield from _commands(content)


def _aws(name: str, kind: dict[str, Any]) -> Iterator[str]:
    """By the model of AWS's own client."""
    disks = kind["node_config"].get("BlockDeviceMappings", [])
    if not disks or not all(disk.get("Ebs", {}).get("DeleteOnTermination") for disk in disks):
        yield f"{name}: its disk must go with it"
    shape = _session().get_service_model("ec2").operation_model("RunInstances").input_shape
    asked = {**kind["node_config"], "MinCount": 1, "MaxCount": 1}
    if (report := ParamValidator().validate(asked, shape)).has_errors():
        yield f"{name}: {report.generate_report()}"
    if not {"InstanceType", "ImageId", "IamInstanceProfile"} <= set(kind["node_config"]):
        yield f"{name}: its type, its image and its role must be named"
    if not re.match(r"ami-|resolve:ssm:/aws/service/", kind["node_config"].get("ImageId", "")):
        yield f"{name}: its image is an id, or a parameter that AWS keeps up to date"
    if kind["node_config"].get("InstanceMarketOptions", {"MarketType": "spot"}) != {"MarketType": "spot"}:
        yield f"{name}: the market is spot, or not named"


@cache
def _session() -> Any:
    return botocore.session.get_session()


def _google(given: Any, known: Any, place: str) -> Iterator[str]:
    if isinstance(known, dict):
        for key, value in given.items():
            if key not in known:
                yield f"{place}: unknown field {key}"
            else:
                yield from _google(value, known[key], f"{place}.{key}")
        if given.get("autoDelete") is False:
            yield f"{place}: its disk must go with it"
    elif isinstance(known, list):
        for value in given:
            yield from _google(value, known[0], place)
    elif isinstance(known, tuple):
        if given not in known:
            yield f"{place}: {given} is not {' or '.join(known)}"
    elif type(given) is not known:
        yield f"{place}: {given!r} is not of type {known.__name__}"


def _google_disks(given: dict[str, Any], zone: str, name: str) -> Iterator[str]:
    """Ray puts the zone before the kinds of machines, not of disks; to Google, a disk without a kind is pd-standard."""
    for disk in given.get("disks", []):
        kind = disk.get("initializeParams", {}).get("diskType", "pd-standard")
        if kind not in (f"{zone}pd-balanced", f"{zone}pd-ssd"):
            yield f"{name}: a disk of the kind {kind} does not go with every machine in this zone"


def _commands(content: dict[str, Any]) -> Iterator[str]:
    lists = [value for key, value in content.items() if key.endswith("_commands")]
    lines = [line for commands in lists for line in commands]
    for line in lines:
        if (program := line.split()[0]) not in PROGRAMS:
            yield f"unknown program {program}"
        for flag in re.findall(r"RAY_([a-z]\w+)=", line):
            if not _is_flag(flag):
                yield f"RAY_{flag} is not a flag of Ray {ray.__version__}"
    starts = [match[1] for line in lines if (match := re.search(r"ray start (.*)", line))]
    for used in (option for line in starts for option in re.findall(r"(--[\w-]+)", line)):
        if used not in _start_options():
            yield f"`ray start` has no option {used}"
    ports = {port for line in starts for port in re.findall(r"(?:--port=|--address=\$RAY_HEAD_IP:)(\d+)", line)}
    if len(starts) != 2 or len(ports) != 1:
        yield "workers must be started with the head's port"


@cache
def _start_options() -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray Serve, which comes along, uses old names of pydantic
        from ray.scripts.scripts import start
    return {option for parameter in start.params for option in parameter.opts}


@cache
def _is_flag(name: str) -> bool:
    """Whether Ray's control store knows the flag: it ignores others in silence."""
    with (Path(ray.__file__).parent / "core/src/ray/gcs/gcs_server").open("rb") as program:
        return mmap.mmap(program.fileno(), 0, access=mmap.ACCESS_READ).find(f"RAY_{name}".encode()) >= 0
