"""Ray, joined or started: quiet, and gone afterwards if it was started here."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import yaml

from fedpns_ray.errors import InputError
from fedpns_ray.runtime.layout import Machine
from fedpns_ray.runtime.leaving import leave_first
from fedpns_ray.runtime.local_rays import PRIVATE, find_cluster, is_private, refuse_private
from fedpns_ray.runtime.lookout import looked_after

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's coming default; the present one warns
os.environ.setdefault("RAY_task_events_max_num_task_in_gcs", "1000")  # else Ray remembers the last 100,000 calls

RESOURCES = ("CPU", "GPU", "memory")
BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
"""Where `ray up` leaves the cluster's configuration on its head."""
NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
NODE_GROUP = "ray.io/node-group"
"""Ray's label that names the kind of a machine."""


@contextmanager
def session(address: str | None = None) -> Iterator[None]:
    """Join the cluster at `address` (or RAY_ADDRESS), or start a Ray of our own and shut it down at the end.

    Within, `loss.guarded` raises a LostError when the cluster is lost.
    """
    _await_end()
    if ray.is_initialized():
        with looked_after(*_control_store("the Ray cluster at {}")):
            yield
        return
    private = _join_or_start(address)
    with looked_after(
        *_control_store("the Ray that was started for this run" if private else "the Ray cluster at {}")
    ) as cluster:
        try:
            yield
        finally:
            if cluster.lost:
                _end_later()
            else:
                ray.shutdown()


def _control_store(name: str) -> tuple[str, str]:
    address = ray.get_runtime_context().gcs_address
    return address, name.format(address)


def _join_or_start(address: str | None) -> bool:
    """Whether a Ray was started; it is then private, and marked as such."""
    if address in (None, "", "auto"):
        address = (
            os.environ.get("RAY_ADDRESS") or address
        )  # in this order, as in Ray: a job's `auto` is its own cluster
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    private = not address or address == "local"
    where: dict[str, Any] = {"address": "local" if private else _examined(str(address))}
    if private:
        where |= {"include_dashboard": False, "labels": {PRIVATE: str(os.getpid())}}
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**where, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"address: no Ray cluster can be joined at {address or 'local'} ({reason})") from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray has put its own in its place
    if not private and any(PRIVATE in node["Labels"] for node in ray.nodes()):
        ray.shutdown()  # one whose processes are hidden from us
        raise is_private(where["address"])
    return private


def _examined(address: str) -> str:
    """The address as HOST:PORT, of a cluster that may be joined."""
    if address == "auto":
        # Ray 2.60 takes the user's token by itself for `auto` alone, which we have resolved before it sees it.
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

        found = find_cluster()
        logging.getLogger("ray").setLevel(logging.ERROR)  # as ray.init will: it tells of the token, too
        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        return found
    _refuse_unreachable(address)
    refuse_private(address)
    return address


_ending: threading.Thread | None = None


def _end_later() -> None:
    """Ray takes up to 15 s to leave a cluster that is lost, flushing what nobody takes: whoever waits hears of it first."""
    global _ending
    _ending = threading.Thread(target=ray.shutdown, daemon=True)
    _ending.start()
    leave_first()


def _await_end() -> None:
    if _ending:
        _ending.join()


def _refuse_unreachable(address: str) -> None:
    """Ray would try for minutes; one look at the port tells."""
    host, _, port = address.rpartition(":")
    if "//" in address or not port.isdigit():
        raise InputError(
            f"address: {address} is not allowed; it must be auto or HOST:PORT (from afar, use `ray job submit`)"
        )
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"address: no Ray cluster answers at {address} ({error})") from None


def machines(whole: bool = False) -> list[Machine]:
    """The machines that are alive, and what is free on them now; or, `whole`, all that they have."""
    from ray._private.state import available_resources_per_node

    alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    resources = {k: node["Resources"] for k, node in alive.items()} if whole else available_resources_per_node()
    return [
        Machine(node["NodeManagerHostname"], *(float(resources.get(k, {}).get(what, 0)) for what in RESOURCES))
        for k, node in alive.items()
    ]


def machines_to_come() -> list[Machine]:
    """What the cluster's autoscaler may still start. A cluster at rest has no workers, and yet a study may fit on it."""
    config = _autoscaling()
    up = Counter(node["Labels"].get(NODE_GROUP) for node in ray.nodes() if node["Alive"])
    if not config or not up[config["head_node_type"]]:
        return []  # no autoscaler, or a file that another cluster has left
    kinds = {name: kind for name, kind in config["available_node_types"].items() if name != config["head_node_type"]}
    coming = [
        _described(name, kind["resources"])
        for name, kind in kinds.items()
        for _ in range(kind.get("max_workers", 0) - up[name])
        if kind["resources"]  # the kind of a machine that nobody described is known when it is there
    ]
    return coming[: max(0, config["max_workers"] - sum(up[name] for name in kinds))]


def _described(name: str, resources: dict[str, Any]) -> Machine:
    memory = float(resources.get("memory", "inf"))
    return Machine(name, float(resources.get("CPU", 0)), float(resources.get("GPU", 0)), memory)


def _autoscaling() -> dict[str, Any] | None:
    """The autoscaler's configuration, which Ray keeps nowhere to ask for: `ray up` leaves a file, KubeRay a resource."""
    if cluster := os.environ.get("RAY_CLUSTER_NAME"):  # a pod of KubeRay's
        from ray.autoscaler._private.kuberay.autoscaling_config import AutoscalingConfigProducer

        try:
            return dict(AutoscalingConfigProducer(cluster, NAMESPACE.read_text().strip())())
        except OSError:  # the pod may not ask
            return None
    try:
        return dict(yaml.safe_load(BOOTSTRAP.expanduser().read_text()))
    except OSError:
        return None
