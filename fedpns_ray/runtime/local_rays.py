"""The Rays on this machine, and which of them are private: started by one run for itself, gone when the run ends."""

from __future__ import annotations

import socket
from typing import NamedTuple

from fedpns_ray.errors import InputError, Shown
from fedpns_ray.runtime import ray_private

PRIVATE = "fedpns-private"
"""The label of the single machine of a private Ray."""
WHAT_TO_DO = "start a cluster with `ray start --head`, or leave --address out"


class Found(NamedTuple):
    address: str
    private: bool


def rays_here() -> set[Found]:
    """Every Ray with a raylet on this machine that is visible from this process."""
    return {Found(address, PRIVATE in labels) for address, labels in ray_private.raylets_here()}


def find_cluster() -> str:
    """The address that `auto` means: as in Ray, that of the last `ray start` or any other; never a private Ray."""
    found, last = rays_here(), ray_private.last_started()
    clusters = sorted(ray.address for ray in found if not ray.private)
    if clusters:
        return last if last in clusters else clusters[0]
    if found:
        problem = "finds only the private Ray of another run on this machine"
        raise InputError("address", Shown("auto"), hint=WHAT_TO_DO, problem=problem)
    if last:
        return last
    raise InputError("address", Shown("auto"), hint=WHAT_TO_DO, problem="finds no Ray on this machine")


def check_joinable(address: str) -> None:
    """Refuse a private Ray, even if named as localhost, which Ray resolves to the machine's address."""
    host, _, port = address.rpartition(":")
    for ray in rays_here():
        its_host, _, its_port = ray.address.rpartition(":")
        if ray.private and port == its_port and _address_of(host) in ("127.0.0.1", _address_of(its_host)):
            raise private_ray_error(address)


def private_ray_error(address: str) -> InputError:
    problem = "is the private Ray of another run and ends with it"
    return InputError("address", Shown(address), hint=WHAT_TO_DO, problem=problem)


def _address_of(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host
