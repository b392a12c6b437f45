"""Joining a Ray cluster, or starting a private Ray that is shut down at the end."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import AuthenticationError

from fedpns_ray.addresses import redacted
from fedpns_ray.errors import InputError, LostError, Shown, one_line
from fedpns_ray.runtime import ray_private
from fedpns_ray.runtime.layout import Machine
from fedpns_ray.runtime.leaving import leave_first
from fedpns_ray.runtime.local_rays import PRIVATE, check_joinable, find_cluster, private_ray_error
from fedpns_ray.runtime.lookout import looked_after
from fedpns_ray.runtime.ray_folder import RayFolder

RESOURCES = ("CPU", "GPU", "memory")
MANY_WORKERS = "worker processes have been started"
LONGEST_MESSAGE = 300
ENDED_WITHIN = 60.0
"""Seconds to wait for the end of a Ray that was lost, before another is joined or started."""

WHERE_TO_PUT_IT = "copy the cluster's to ~/.ray/auth_token, or name its file in RAY_AUTH_TOKEN_PATH"

logger = logging.getLogger(__name__)


@contextmanager
def session(address: str | None = None) -> Iterator[None]:
    """Join the cluster at `address` (or RAY_ADDRESS), or start a private Ray and shut it down at the end.

    Inside, `lookout.guarded` raises a LostError when the cluster is lost.
    """
    _await_end()
    if ray.is_initialized():
        with looked_after(*_control_store("the Ray cluster at {}")):
            yield
        return
    with ray_private.raylets_heard(_hear):
        folder = _join_or_start(address)
        name = "the Ray that was started for this run" if folder else "the Ray cluster at {}"
        with looked_after(*_control_store(name)) as cluster:
            try:
                yield
            finally:
                if cluster.lost:
                    _end_later(folder)
                else:
                    ray.shutdown()
                    if folder:
                        folder.remove()


def _hear(message: str) -> None:
    """What a raylet has to say, in one line; that many workers start is planned, and no news."""
    logger.log(
        logging.DEBUG if MANY_WORKERS in message else logging.INFO, "Ray: %s", one_line(message, LONGEST_MESSAGE)
    )


def _control_store(name: str) -> tuple[str, str]:
    address = ray.get_runtime_context().gcs_address
    return address, name.format(address)


def _join_or_start(address: str | None) -> RayFolder | None:
    """Join a cluster, or start a private Ray, labelled PRIVATE; returns the folder of a private one."""
    if address in (None, "", "auto"):  # as in Ray, RAY_ADDRESS overrides `auto`: within a job it is the job's cluster
        address = os.environ.get("RAY_ADDRESS") or address
    ray_private.limit_task_history()
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    private = not address or address == "local"
    try:
        if private:
            logger.info("starting Ray …")
            return _start(quiet)
        resolved = _resolved(str(address))
        with ray_private.signals_kept():
            ray.init(address=resolved, **quiet)
    except InputError:
        raise
    except AuthenticationError:
        where, problem = Shown(redacted(address or "local")), "requires a token, and there is none here"
        raise InputError("address", where, problem=problem, hint=WHERE_TO_PUT_IT) from None
    except (ConnectionError, ValueError, RuntimeError) as error:
        problem = f"cannot be joined ({one_line(error)})"
        hint = (
            "" if private or os.environ.get("RAY_AUTH_MODE") == "token" else "if it needs a token: RAY_AUTH_MODE=token"
        )
        raise InputError("address", Shown(redacted(address or "local")), problem=problem, hint=hint) from None
    if any(PRIVATE in node["Labels"] for node in ray.nodes()):
        ray.shutdown()  # a private Ray whose processes are not visible from here
        raise private_ray_error(resolved)
    return None


def _start(quiet: dict[str, Any]) -> RayFolder:
    """A private Ray, in a folder of its own, that no other machine reaches."""
    folder = RayFolder()
    ray_private.allow_large_replies()
    try:
        with ray_private.on_loopback(), ray_private.signals_kept():
            labels = {PRIVATE: str(os.getpid())}
            where = ray_private.in_folder(folder.path)
            ray.init(address="local", include_dashboard=False, labels=labels, **where, **quiet)
    except BaseException as error:
        ray.shutdown()
        folder.remove()
        if type(error) is Exception:  # as Ray's own limit of 30 s raises it
            raise LostError(f"Ray could not be started ({one_line(error)})") from None
        raise
    return folder


def _resolved(address: str) -> str:
    """The address as HOST:PORT of a cluster that may be joined."""
    if address == "auto":
        found = find_cluster()
        _refuse_unreachable(found)
        logging.getLogger("ray").setLevel(logging.ERROR)  # as ray.init will do: use_token logs a warning
        ray_private.use_token()
        return found
    check_joinable(address)
    _refuse_unreachable(address)
    return address


_ending: threading.Thread | None = None


def _end_later(folder: RayFolder | None) -> None:
    """Shut down in the background: Ray takes up to 15 s to leave a lost cluster, and the caller should not wait.

    The folder of a private Ray that was lost stays, with its logs, until the next one starts.
    """

    def end() -> None:
        ray.shutdown()
        if folder:
            folder.release()

    global _ending
    _ending = threading.Thread(target=end, daemon=True)
    _ending.start()
    leave_first()


def _await_end() -> None:
    if _ending:
        _ending.join(ENDED_WITHIN)


def _refuse_unreachable(address: str) -> None:
    """One connection to the port, where Ray will look for it: Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    if "//" in address or not port.isdigit():
        hint = "from outside the cluster, use `ray job submit`"
        raise InputError("address", Shown(redacted(address)), "it must be auto or HOST:PORT", hint)
    try:
        socket.create_connection((ray_private.joined_at(host), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise InputError("address", Shown(redacted(address)), problem=f"does not answer ({one_line(error)})") from None


def machines(whole: bool = False) -> list[Machine]:
    """The machines that are alive, with what is free on them now or, if `whole`, with all that they have."""
    alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    resources = {k: node["Resources"] for k, node in alive.items()} if whole else ray_private.free_resources()
    return [
        Machine(node["NodeManagerHostname"], *(float(resources.get(k, {}).get(what, 0)) for what in RESOURCES))
        for k, node in alive.items()
    ]


def machines_to_come() -> list[Machine]:
    """The machines that the autoscaler may still start: a cluster at rest has no workers, yet a study may fit on it."""
    config = ray_private.autoscaling_config()
    up = Counter(node["Labels"].get(ray_private.NODE_GROUP) for node in ray.nodes() if node["Alive"])
    if not config or not up[config["head_node_type"]]:
        return []  # no autoscaler, or a file left by another cluster
    kinds = {name: kind for name, kind in config["available_node_types"].items() if name != config["head_node_type"]}
    coming = [
        _described(name, kind["resources"])
        for name, kind in kinds.items()
        for _ in range(kind.get("max_workers", 0) - up[name])
        if kind["resources"]  # without a description, a machine's resources are known only once it is up
    ]
    return coming[: max(0, config["max_workers"] - sum(up[name] for name in kinds))]


def _described(name: str, resources: dict[str, Any]) -> Machine:
    memory = float(resources.get("memory", "inf"))
    return Machine(name, float(resources.get("CPU", 0)), float(resources.get("GPU", 0)), memory)
