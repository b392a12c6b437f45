"""Every use of a private or undocumented API of Ray, in one file: what to check when Ray is upgraded.

Written against Ray 2.60. Each function says why the public API is not enough.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
"""Where `ray up` leaves the cluster's configuration on the head."""
NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds the name of its Kubernetes namespace."""


def limit_task_history() -> None:
    """Keep the last 1,000 calls in the control store instead of 100,000. Call it before `ray.init`.

    No public setting exists; the control store that `ray.init` starts reads RAY_<flag> for every internal flag.
    """
    os.environ.setdefault("RAY_task_events_max_num_task_in_gcs", "1000")


@contextmanager
def on_loopback() -> Iterator[None]:
    """Within, `ray.init` starts a Ray all of whose sockets are bound to loopback.

    Ray replaces `_node_ip_address="127.0.0.1"` by an address that other machines reach, unless clusters are switched
    off, as they are on macOS and Windows. Their variable, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER, is read when Ray is
    imported; so the constant is changed, and only for this while: a cluster that this process joins later keeps its
    addresses. Without it 9 of 9 listeners of Ray 2.60 are reachable from outside, with it none.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def joined_at(host: str) -> str:
    """The host that `ray.init` connects to: for localhost this machine's own address, where no private Ray listens."""
    from ray._private.services import resolve_ip_for_localhost

    return str(resolve_ip_for_localhost(host)) if host else host


def temporary_folder() -> Path:
    """Where Ray puts its folder `ray`: RAY_TMPDIR, TMPDIR or /tmp. Nothing public says so before a Ray is started."""
    from ray._common.utils import get_default_system_temp_dir

    return Path(get_default_system_temp_dir())


def in_folder(folder: Path) -> dict[str, str]:
    """Arguments of `ray.init` that put the session into this folder; they are listed in its docstring as private."""
    return {"_temp_dir": str(folder)}


def quiet_tune(verbose: bool) -> None:
    """Leave signals, logs and output to the study. Tune reads these variables when a Tuner runs."""
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # the study's own `stop` handles SIGINT, and SIGTERM too
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the run folders hold everything they would write
    os.environ["RAY_AIR_NEW_OUTPUT"] = "1" if verbose else "0"  # the new output prints even with verbose=0


def actor_of(trial: Any) -> Any:
    """The actor that runs a trial of Tune's; None if there is none. Callbacks get the trial, but not its actor."""
    return trial.temporary_state.ray_actor


def use_token() -> None:
    """Turn on token authentication if this user has a token.

    Ray does this itself for the address `auto` alone, which we resolve before Ray sees it.
    """
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def last_started() -> str | None:
    """The address that the last `ray start` on this machine wrote to /tmp/ray/ray_current_cluster."""
    from ray._private.services import find_bootstrap_address

    address = find_bootstrap_address(None)
    return str(address) if address else None


def ray_commands(*programs: str) -> Iterator[list[str]]:
    """The command lines of Ray's own programs on this machine; they name the folder of their session."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        if command[0].rpartition("/")[2] in programs:
            yield command


def raylets_here() -> Iterator[tuple[str, dict[str, str]]]:
    """The control store's address and the labels of every raylet on this machine, from their command lines.

    Ray's own `auto` looks there too; nothing public lists clusters without joining one. `start_raylet` in
    ray._private.services writes `--gcs-address=` and `--labels=`; a raylet without them is not found.
    """
    for command in ray_commands("raylet"):
        options = dict(word.lstrip("-").split("=", 1) for word in command[1:] if word.startswith("--") and "=" in word)
        if address := options.get("gcs-address"):
            yield address, json.loads(options.get("labels") or "{}")


def free_resources() -> dict[str, dict[str, float]]:
    """What is free on each machine, by its id; the public `ray.available_resources` gives the sum over all machines."""
    from ray._private.state import available_resources_per_node

    return dict(available_resources_per_node())


def autoscaling_config() -> dict[str, Any] | None:
    """The autoscaler's configuration; None without one.

    Ray has no call for it: `ray up` leaves a file on the head, KubeRay a resource in Kubernetes.
    """
    if cluster := os.environ.get("RAY_CLUSTER_NAME"):  # set in the pods of KubeRay
        from ray.autoscaler._private.kuberay.autoscaling_config import AutoscalingConfigProducer

        try:
            return dict(AutoscalingConfigProducer(cluster, NAMESPACE.read_text().strip())())
        except OSError:  # the pod has no permission to read it
            return None
    try:
        return dict(yaml.safe_load(BOOTSTRAP.expanduser().read_text()))
    except OSError:
        return None
