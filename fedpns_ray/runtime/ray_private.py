"""Every use of a private or undocumented API of Ray, in one file: what to check when Ray is upgraded.

Written against Ray 2.60. Each function says why the public API is not enough.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import yaml

BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
"""Where `ray up` leaves the cluster's configuration on the head."""
NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds the name of its Kubernetes namespace."""
NODE_GROUP = "ray.io/node-group"
"""Ray's label for the type of a machine."""
ANSWERED_WITHIN = 10
"""Seconds for the control store to say what the autoscaler does."""


def limit_task_history() -> None:
    """Keep the last 1,000 calls in the control store instead of 100,000. Call it before `ray.init`.

    No public setting exists; the control store that `ray.init` starts reads RAY_<flag> for every internal flag.
    """
    os.environ.setdefault("RAY_task_events_max_num_task_in_gcs", "1000")


def allow_large_replies() -> None:
    """Let answers of up to 1 MB travel within the reply to a call, not through the object store: before `ray.init`.

    Ray's limit is 100 kB, and an actor's answer for five nodes that train MLR has 157 kB. Read as the flag above is.
    """
    os.environ.setdefault("RAY_max_direct_call_object_size", str(1 << 20))


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


@contextmanager
def signals_kept() -> Iterator[None]:
    """Within, `ray.init` leaves SIGTERM to the handler that is set, which may want to finish first.

    Ray sets two of its own, without a setting for either, and both end the process at once; SIGINT it only delays. Its
    core sets a third, which calls the one before it, but prints a stack trace first; that one is replaced afterwards.
    """
    from ray._private import utils

    before, handler = utils.set_sigterm_handler, signal.getsignal(signal.SIGTERM)
    utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = before
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


@contextmanager
def raylets_heard(hear: Callable[[str], None]) -> Iterator[None]:
    """Within, `hear` gets what raylets have to say, which Ray prints to stdout even with `log_to_driver=False`."""
    from ray._private import worker

    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda data, **how: hear("\n".join(data["lines"]))
    try:
        yield
    finally:
        worker.print_to_stdstream = before


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


def job_client(address: str, headers: dict[str, str], within: float) -> Any:
    """Ray's client for jobs, each of whose requests is given up after so many seconds without an answer.

    Ray sets no limit: behind a tunnel whose other end is gone, its client waits forever.
    """
    from ray.job_submission import JobSubmissionClient

    class Client(JobSubmissionClient):
        def _do_request(self, *what: Any, **how: Any) -> Any:
            return super()._do_request(*what, timeout=within, **how)

    return Client(address, headers=headers)


def machine_of(actor_id: str) -> str:
    """The id of the machine that an actor is or was on; empty if that is not known.

    The public `ray.util.state` asks the dashboard, which a private Ray does not have.
    """
    from ray._private.state import actors

    return str(actors(actor_id).get("Address", {}).get("NodeID", ""))


@contextmanager
def failures_counted_by(count: Callable[[Any, BaseException | None], int]) -> Iterator[None]:
    """Within, `count` says how many failures of a trial of Tune's count, each time that one has failed.

    Tune leaves out those of machines that the autoscaler preempted, by `RayActorError.preempted`, and asks nobody about
    others: `Trial.handle_error` counts, and the callbacks come after its decision.
    """
    from ray.tune.experiment import Trial

    before = Trial.handle_error

    def handle_error(self: Any, exc: Any = None) -> None:
        before(self, exc)
        self.run_metadata.num_failures = count(self, exc)

    Trial.handle_error = handle_error
    try:
        yield
    finally:
        Trial.handle_error = before


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


def end_cluster(config: dict[str, Any]) -> None:
    """Terminate the workers of a cluster in a cloud, then its head, through the provider that has started them.

    `ray down` is a command, for another machine: it begins by stopping Ray on the head, over ssh.
    """
    from ray.autoscaler._private.providers import _get_node_provider
    from ray.autoscaler.tags import NODE_KIND_HEAD, NODE_KIND_WORKER, TAG_RAY_NODE_KIND

    provider = _get_node_provider(config["provider"], config["cluster_name"])
    for kind in (NODE_KIND_WORKER, NODE_KIND_HEAD):
        if machines := provider.non_terminated_nodes({TAG_RAY_NODE_KIND: kind}):
            provider.terminate_nodes(machines)


def logs_folder() -> Path:
    """Where the Ray that this process is connected to writes its logs on this machine."""
    from ray._private.worker import global_worker

    return Path(global_worker.node.get_logs_dir_path())


class Launch(NamedTuple):
    """Machines of one type that the autoscaler has asked for."""

    kind: str
    machines: int
    failed: bool
    at: float | None
    """When they were asked for, or failed, in seconds since 1970; None where the autoscaler does not say."""
    reason: str
    """Why they failed, in the cloud's words, or how far they are."""


def launches() -> list[Launch]:
    """What the autoscaler is starting, and what it could not start and why.

    `ray status` prints it; nothing public returns it. The second autoscaler reports to the control store, the first
    one, which `RAY_enable_autoscaler_v2=0` and older clusters use, leaves JSON there.
    """
    import ray
    from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
    from ray.autoscaler.v2.sdk import get_cluster_status
    from ray.experimental.internal_kv import _internal_kv_get

    status = get_cluster_status(ray.get_runtime_context().gcs_address, timeout=ANSWERED_WITHIN)
    found = [Launch(it.ray_node_type_name, it.count, False, it.request_ts_s, "") for it in status.pending_launches]
    found += [Launch(it.ray_node_type_name, 1, False, None, it.details or "") for it in status.pending_nodes]
    found += [
        Launch(it.ray_node_type_name, it.count, True, it.failed_ts_s, it.details or "no reason is given")
        for it in status.failed_launches
    ]
    first = json.loads(_internal_kv_get(DEBUG_AUTOSCALING_STATUS) or b"{}").get("autoscaler_report") or {}
    return found + list(_launches_of_the_first(first))


def _launches_of_the_first(report: dict[str, Any]) -> Iterator[Launch]:
    for kind, count in (report.get("pending_launches") or {}).items():
        yield Launch(kind, count, False, None, "")
    for _, kind, how_far in report.get("pending_nodes") or ():
        yield Launch(kind, 1, False, None, how_far)
    availability = (report.get("node_availability_summary") or {}).get("node_availabilities") or {}
    for kind, known in availability.items():
        if why := known.get("unavailable_node_information"):
            yield Launch(kind, 1, True, known.get("last_checked_timestamp"), f"{why['category']}: {why['description']}")
