"""Which Rays run on this machine, and which of them are private: started by a run for itself alone, gone when it ends."""

from __future__ import annotations

import json
import socket
from typing import NamedTuple

import psutil

from fedpns_ray.errors import InputError

PRIVATE = "fedpns-private"
"""The label of the one machine of a private Ray."""
WHAT_TO_DO = "start a cluster with `ray start --head`, or leave --address out"


class Found(NamedTuple):
    address: str
    private: bool


def rays_here() -> set[Found]:
    """By the command lines of raylets, where Ray's own `auto` looks, too.

    Ray 2.60 writes `--gcs-address=` and `--labels=` there (services.start_raylet) and offers nothing that could be asked
    without joining first. A raylet that is no longer found so is a Ray that `auto` does not find.
    """
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        if command[0].rpartition("/")[2] != "raylet":
            continue
        options = dict(word.lstrip("-").split("=", 1) for word in command[1:] if word.startswith("--") and "=" in word)
        if address := options.get("gcs-address"):
            found.add(Found(address, PRIVATE in json.loads(options.get("labels") or "{}")))
    return found


def find_cluster() -> str:
    """The address that `auto` means: as in Ray the cluster that `ray start` has noted, or any other; never a private one."""
    from ray._private.services import find_bootstrap_address  # Ray 2.60: reads /tmp/ray/ray_current_cluster

    found, noted = rays_here(), find_bootstrap_address(None)
    clusters = sorted(ray.address for ray in found if not ray.private)
    if clusters:
        return str(noted) if noted in clusters else clusters[0]
    if found:
        raise InputError(f"address: auto finds only the private Ray of another run on this machine; {WHAT_TO_DO}")
    if noted:
        return str(noted)
    raise InputError(f"address: auto finds no Ray on this machine; {WHAT_TO_DO}")


def refuse_private(address: str) -> None:
    """What is written as localhost, Ray knows by the machine's address."""
    host, _, port = address.rpartition(":")
    for ray in rays_here():
        its_host, _, its_port = ray.address.rpartition(":")
        if ray.private and port == its_port and _address_of(host) in ("127.0.0.1", _address_of(its_host)):
            raise is_private(address)


def is_private(address: str) -> InputError:
    return InputError(f"address: {address} is the private Ray of another run, which ends with it; {WHAT_TO_DO}")


def _address_of(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host
