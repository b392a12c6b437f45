"""Checks the machines of a cluster: what they have, whether they agree, and what to do about it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedpns_ray.data.sources import data_root
from fedpns_ray.doctor.machine import TESTED, Finding, data_sets
from fedpns_ray.errors import InputError
from fedpns_ray.records.storage import Storage
from fedpns_ray.runtime.hardware import count_gpus
from fedpns_ray.runtime.session import machines_to_come, session
from fedpns_ray.study.tune import check_seen_by_all

PATIENCE = 60.0
"""Seconds within which a machine must answer."""


class Look(NamedTuple):
    """What one machine reports about itself."""

    versions: dict[str, str]
    gpus: int
    token: bool


def examine_cluster(address: str, out: str | None = None) -> list[Finding]:
    with session(address):
        nodes = [node for node in ray.nodes() if node["Alive"]]
        looks, silent = _ask(nodes)
        findings = [_machines(nodes), *silent, *_versions(looks), *_gpus(nodes, looks), _token(looks), _data()]
        return [*findings, _storage(out)] if out else findings


def _ask(nodes: list[dict[str, Any]]) -> tuple[dict[str, Look], list[Finding]]:
    look = ray.remote(num_cpus=0, max_retries=0)(_look)
    asked = {
        _name(node): look.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in nodes
    }
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=PATIENCE)
    looks, silent = {}, []
    for name, answer in asked.items():
        try:
            looks[name] = ray.get(answer, timeout=0)
        except (ray.exceptions.RayError, TimeoutError) as error:
            reason = f"does not answer ({type(error).__name__})"
            silent.append(Finding(False, name, reason, "see its logs in /tmp/ray/session_latest/logs"))
    return looks, silent


def _look() -> Look:
    versions = {"Python": platform.python_version()}
    for package in TESTED:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "missing"
    return Look(versions, count_gpus(), os.environ.get("RAY_AUTH_MODE") == "token")


def _name(node: dict[str, Any]) -> str:
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def _machines(nodes: list[dict[str, Any]]) -> Finding:
    total = {what: sum(node["Resources"].get(what, 0) for node in nodes) for what in ("CPU", "GPU")}
    coming = machines_to_come()
    more = f"; {len(coming)} more may be started" if coming else ""
    found = f"{len(nodes)} with {total['CPU']:g} CPU and {total['GPU']:g} GPU for trials{more}"
    empty = not any(total.values()) and not coming
    return Finding(not empty, "machines", found, "no trial can run: wait for workers or add some" if empty else "")


def _versions(looks: dict[str, Look]) -> list[Finding]:
    findings = []
    for what in ("Python", *TESTED):
        by_version: dict[str, list[str]] = {}
        for name, look in looks.items():
            by_version.setdefault(look.versions[what], []).append(name)
        if len(by_version) > 1:
            found = "; ".join(f"{number} on {', '.join(names)}" for number, names in by_version.items())
            advice = "install the same everywhere: requirements.txt and one version of Python"
            findings.append(Finding(False, what, found, advice))
            continue
        number = next(iter(by_version), "-")
        tested = TESTED.get(what)
        if tested in (None, number.split("+")[0]):
            findings.append(Finding(True, what, f"{number} everywhere"))
        else:
            findings.append(Finding(None, what, f"{number} everywhere", f"tested with {tested}; bits may differ"))
    return findings


def _gpus(nodes: list[dict[str, Any]], looks: dict[str, Look]) -> list[Finding]:
    findings = []
    for node in nodes:
        name, by_ray = _name(node), int(node["Resources"].get("GPU", 0))
        by_torch = looks[name].gpus if name in looks else 0
        if not by_ray and not by_torch:
            continue
        ok: bool | None = by_torch >= by_ray
        found, advice = f"Ray counts {by_ray}, torch {by_torch}", ""
        if by_torch < 0:
            found, advice = f"Ray counts {by_ray}; torch cannot be imported", "install requirements.txt there"
        elif by_torch < by_ray:
            advice = (
                "trials would fail: install a CUDA build of torch or a newer driver, or start Ray without --num-gpus"
            )
        elif by_torch > by_ray:
            ok, advice = None, "some are not used: start Ray there with --num-gpus"
        findings.append(Finding(ok, f"GPUs of {name}", found, advice))
    return findings or [Finding(None, "GPUs", "none: everything runs on CPUs")]


def _token(looks: dict[str, Look]) -> Finding:
    without = [name for name, look in looks.items() if not look.token]
    if not without:
        return Finding(True, "token", "required by every machine")
    found = "not required: anyone who can reach a port can run code here"
    advice = "run `ray get-auth-token --generate`; set RAY_AUTH_MODE=token where Ray is started, as in cluster/"
    return Finding(None if len(looks) == 1 else False, "token", found, advice)


def _data() -> Finding:
    """Data sets on this machine only, where a study's driver runs: Ray's object store takes them to the others."""
    return Finding(
        None, "data sets here", *data_sets(data_root(), "not here: {}; the first study downloads what it needs")
    )


def _storage(out: str) -> Finding:
    storage = Storage(out)
    try:
        check_seen_by_all(storage)
    except InputError as error:
        return Finding(False, "storage", str(storage), str(error))
    return Finding(True, "storage", f"{storage}: every machine can read and write it")
