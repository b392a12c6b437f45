"""Which actors there are, and on which share of which machine: planned on paper before anything starts.

The layout changes nothing but speed. A plan that cannot be placed is refused here, with the numbers and the nearest
layout that fits; nothing ever waits in silence for resources that will not come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedpns_ray.errors import InputError

ACTOR_MEMORY = 190 * 10**6
"""What an actor that imports torch takes for itself, measured."""
ACTORS_PER_GPU = 4
"""Small models leave most of a GPU idle; beyond a few actors they wait for each other."""
SMALLEST_SHARE = 0.0001
"""The finest fraction of a resource that Ray knows."""


@dataclass(frozen=True)
class Layout:
    """What the user asks for; None leaves it to `plan`."""

    actors: int | None = None
    """How many actors share the work, each able to host every node."""
    nodes_per_actor: int | None = None
    """Nodes with a home: actor k hosts nodes k n .. (k + 1) n - 1. 1 is the paper's picture: one node, one actor."""
    gpus_per_actor: float | None = None
    cpus_per_actor: float | None = None
    cpu_fallback: bool = False
    """Train on the CPU where an actor is given a GPU but torch there sees none; otherwise that is refused."""

    def __post_init__(self) -> None:
        for name, least in (("actors", 1), ("nodes_per_actor", 1), ("gpus_per_actor", 0), ("cpus_per_actor", 0)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise InputError(f"{name}: {value} is not allowed; it must be at least {least}")
        if self.actors and self.nodes_per_actor:
            raise InputError(f"nodes_per_actor: {self.nodes_per_actor} is not allowed beside actors: give one of them")
        if self.gpus_per_actor and self.gpus_per_actor > 1 and self.gpus_per_actor % 1:
            raise InputError(f"gpus_per_actor: {self.gpus_per_actor} is not allowed; above 1 it must be whole")


@dataclass(frozen=True)
class Machine:
    """What is free on a machine of the cluster."""

    name: str
    cpus: float
    gpus: float
    memory: float


@dataclass(frozen=True)
class Plan:
    """One bundle of resources a GPU (or, without GPUs, an actor), and how many actors share each."""

    bundles: tuple[dict[str, float], ...]
    actors_in: tuple[int, ...]
    cpus_per_actor: float
    gpus_per_actor: float
    nodes_per_actor: int | None = None
    cpu_fallback: bool = False

    @property
    def actors(self) -> int:
        return sum(self.actors_in)

    def describe(self) -> str:
        share = f"{self.gpus_per_actor:g} GPU" if self.gpus_per_actor else f"{self.cpus_per_actor:g} CPU"
        return f"{self.actors} actor{'s' * (self.actors > 1)}, {share} each"


def plan(layout: Layout, machines: Sequence[Machine], nodes: int, drawn: int) -> Plan:
    """Actors for `nodes` nodes, `drawn` of which train in a round.

    Left to itself: every core, or every GPU, and no more actors than nodes train at once. One bundle a GPU, actors dealt
    out so that every GPU carries the same number (give or take one).
    """
    cpus, gpus = sum(m.cpus for m in machines), sum(math.floor(m.gpus) for m in machines)
    wanted = layout.actors or (math.ceil(nodes / layout.nodes_per_actor) if layout.nodes_per_actor else None)
    gpus_per_actor = layout.gpus_per_actor
    if gpus_per_actor is None:
        each = min(ACTORS_PER_GPU, max(1, math.floor(cpus / gpus))) if gpus else 1
        gpus_per_actor = _share([1.0] * gpus, wanted or gpus * each) if gpus else 0.0
    cpus_per_actor = layout.cpus_per_actor
    if cpus_per_actor is None:
        cpus_per_actor = _share([m.cpus for m in machines], wanted or 1) or 1.0
    cpus_per_actor = max(cpus_per_actor, SMALLEST_SHARE)
    slots = [_slots(machine, cpus_per_actor, gpus_per_actor) for machine in machines]
    actors = wanted or max(1, min(sum(slots), drawn))
    if actors > sum(slots):
        raise InputError(_refusal(layout, machines, actors, cpus_per_actor, gpus_per_actor, sum(slots), nodes))
    if not gpus_per_actor:
        alone = ({"CPU": cpus_per_actor},) * actors
        return Plan(alone, (1,) * actors, cpus_per_actor, 0.0, layout.nodes_per_actor, layout.cpu_fallback)
    dealt = _deal(machines, slots, actors, gpus_per_actor)
    size = max(1.0, gpus_per_actor)
    bundles = tuple({"GPU": size, "CPU": _round(count * cpus_per_actor)} for count in dealt)
    return Plan(bundles, dealt, cpus_per_actor, gpus_per_actor, layout.nodes_per_actor, layout.cpu_fallback)


def _share(amounts: Sequence[float], actors: int) -> float:
    """The largest share, at most 1, of which the amounts (of CPUs by machine, of each GPU) hold `actors`; 0 if none."""
    low, high = 0, round(1 / SMALLEST_SHARE)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(math.floor(amount / (middle * SMALLEST_SHARE) + 1e-9) for amount in amounts) >= actors
        low, high = (middle, high) if fits else (low, middle - 1)
    return _round(low * SMALLEST_SHARE)


def _round(amount: float) -> float:
    return round(amount, 4)


def _slots(machine: Machine, cpus_per_actor: float, gpus_per_actor: float) -> int:
    """Actors that fit on a machine."""
    limits = [machine.memory / ACTOR_MEMORY, machine.cpus / cpus_per_actor + 1e-9]
    if gpus_per_actor >= 1:
        limits.append(machine.gpus // gpus_per_actor)
    elif gpus_per_actor:
        limits.append(math.floor(machine.gpus) * math.floor(1 / gpus_per_actor + 1e-9))
    return math.floor(min(limits))


def _deal(machines: Sequence[Machine], slots: Sequence[int], actors: int, gpus_per_actor: float) -> tuple[int, ...]:
    """Actors on each GPU: always to the GPU with the fewest, on the machine with the fewest."""
    size = max(1.0, gpus_per_actor)
    gpus = [[0] * math.floor(machine.gpus // size) for machine in machines]
    for _ in range(actors):
        open_machines = [k for k in range(len(machines)) if gpus[k] and sum(gpus[k]) < slots[k]]
        k = min(open_machines, key=lambda k: (min(gpus[k]), sum(gpus[k]), k))
        gpus[k][gpus[k].index(min(gpus[k]))] += 1
    return tuple(count for machine in gpus for count in machine if count)


def _refusal(
    layout: Layout, machines: Sequence[Machine], actors: int, cpus: float, gpus: float, fitting: int, nodes: int
) -> str:
    there = (
        f"{sum(m.cpus for m in machines):g} CPUs, {sum(m.gpus for m in machines):g} GPUs and "
        f"{sum(m.memory for m in machines) / 1e9:.1f} GB are free on {len(machines)} machine{'s' * (len(machines) != 1)}"
    )
    needs = f"{cpus:g} CPU" + (f", {gpus:g} GPU" if gpus else "") + f" and {ACTOR_MEMORY / 1e6:.0f} MB each"
    if fitting == 0:
        nearest = "--gpus-per-actor 0" if gpus and not any(m.gpus for m in machines) else "--in-process"
    elif layout.nodes_per_actor:
        nearest = f"--nodes-per-actor {math.ceil(nodes / fitting)}"
    else:
        nearest = f"--actors {fitting}"
    field = "nodes_per_actor" if layout.nodes_per_actor else "actors" if layout.actors else "layout"
    return f"{field}: {actors} actor{'s' * (actors > 1)} with {needs} do not fit; {there}; the nearest that fits: {nearest}"
