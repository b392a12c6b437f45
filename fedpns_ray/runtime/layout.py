"""How many actors there are and what share of which machine each gets, planned before anything starts.

The layout changes nothing but speed. A plan that cannot be placed is refused here, with the numbers and the nearest
layout that fits; nothing waits silently for resources that will never come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fedpns_ray.errors import InputError, Shown
from fedpns_ray.runtime.deadlines import PATIENCE

ACTOR_MEMORY = 200 * 10**6
"""Bytes that an actor takes once it has trained, measured: `python -m benchmarks.cluster --one-each 12`."""
ACTOR_START = 2.0
"""Seconds of a core that an actor takes to start, measured."""
MANY = 8
"""Actors whose memory and start are worth a word beforehand."""
ACTORS_PER_GPU = 4
"""A small model leaves most of a GPU idle; with more actors than this, they wait for each other."""
SMALLEST_SHARE = 0.0001
"""The smallest fraction of a resource that Ray supports."""


LEAST = {"actors": 1, "nodes_per_actor": 1, "gpus_per_actor": 0, "cpus_per_actor": 0, "patience": 1}


@dataclass(frozen=True)
class Layout:
    """What the user asks for; `plan` fills in what is None."""

    actors: int | None = None
    """How many actors share the work; each can host every node."""
    nodes_per_actor: int | None = None
    """Each node has a fixed actor: actor k hosts nodes k n .. (k + 1) n - 1. 1 is the paper's picture."""
    gpus_per_actor: float | None = None
    cpus_per_actor: float | None = None
    cpu_fallback: bool = False
    """Train on the CPU where an actor is given a GPU that torch cannot use; otherwise that is refused."""
    patience: float = PATIENCE
    """Seconds that an actor may be silent, at least, before it is killed and its work done again."""

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise InputError(name, value, f"it must be at least {least}")
        if self.actors and self.nodes_per_actor:
            problem = "is not allowed together with actors"
            raise InputError("nodes_per_actor", self.nodes_per_actor, hint="set only one of them", problem=problem)
        if self.gpus_per_actor and self.gpus_per_actor > 1 and self.gpus_per_actor % 1:
            raise InputError("gpus_per_actor", self.gpus_per_actor, "above 1 it must be a whole number")


@dataclass(frozen=True)
class Machine:
    """What is free on one machine of the cluster; memory in bytes."""

    name: str
    cpus: float
    gpus: float
    memory: float


@dataclass(frozen=True)
class Plan:
    """One bundle of resources per GPU (without GPUs, per actor), and how many actors share each."""

    bundles: tuple[dict[str, float], ...]
    actors_in: tuple[int, ...]
    cpus_per_actor: float
    gpus_per_actor: float
    layout: Layout = Layout()
    """What was asked for."""

    @property
    def actors(self) -> int:
        return sum(self.actors_in)

    def describe(self) -> str:
        share = f"{self.gpus_per_actor:g} GPU" if self.gpus_per_actor else f"{self.cpus_per_actor:g} CPU"
        return f"{_counted(self.actors, 'actor')}, {share} each"

    def announce(self, cores: float) -> str:
        """What many actors take, said before they start on so many cores; empty for a few."""
        if self.actors < MANY:
            return ""
        memory, seconds = self.actors * ACTOR_MEMORY / 1e9, self.actors * ACTOR_START / max(cores, 1)
        return (
            f"starting {self.describe()}: about {memory:.1f} GB of memory, and {seconds:.0f} s on {cores:g} idle cores"
        )


def plan(layout: Layout, machines: Sequence[Machine], nodes: int, drawn: int) -> Plan:
    """Actors for `nodes` nodes, `drawn` of which train in a round.

    By default every core or every GPU is used, with no more actors than nodes that train at once. There is one bundle
    per GPU, and actors are dealt as evenly over the GPUs as the machines' cores and memory allow.
    """
    gpus = sum(math.floor(m.gpus) for m in machines)
    wanted = layout.actors or (math.ceil(nodes / layout.nodes_per_actor) if layout.nodes_per_actor else None)
    gpus_per_actor = layout.gpus_per_actor
    if gpus_per_actor is None:
        gpus_per_actor = _gpu_share(layout.cpus_per_actor, machines, wanted) if gpus else 0.0
    cpus_per_actor = layout.cpus_per_actor
    if cpus_per_actor is None:
        cpus_per_actor = _cpu_share(gpus_per_actor, machines, wanted or 1)
    cpus_per_actor = max(cpus_per_actor, SMALLEST_SHARE)
    slots = [_slots(machine, cpus_per_actor, gpus_per_actor) for machine in machines]
    actors = wanted or max(1, min(sum(slots), drawn))
    if actors > sum(slots):
        lacks_gpus = gpus_per_actor > 0 and not any(machine.gpus for machine in machines)
        nearest = "--gpus-per-actor 0" if lacks_gpus else _nearest(layout, sum(slots), nodes)
        needs = [f"{cpus_per_actor:g} CPU", *([f"{gpus_per_actor:g} GPU"] if gpus_per_actor else [])]
        raise _does_not_fit(layout, machines, actors, ", ".join(needs), nearest)
    if not gpus_per_actor:
        alone = ({"CPU": cpus_per_actor},) * actors
        return Plan(alone, (1,) * actors, cpus_per_actor, 0.0, layout)
    dealt = _deal(machines, slots, actors, gpus_per_actor)
    size = max(1.0, gpus_per_actor)
    bundles = tuple({"GPU": size, "CPU": _round(count * cpus_per_actor)} for count in dealt)
    return Plan(bundles, dealt, cpus_per_actor, gpus_per_actor, layout)


def _gpu_share(cpus_per_actor: float | None, machines: Sequence[Machine], wanted: int | None) -> float:
    """The largest share of a GPU with which all wanted actors fit; if any number will do, most of them, within reason.

    Machine by machine: cores of a machine without a GPU feed none, and those of another machine do not, either.
    """
    if wanted is None:
        shares = [_round(1 / actors) for actors in range(1, ACTORS_PER_GPU + 1)]
        return max(shares, key=lambda share: _all_slots(machines, cpus_per_actor or 1.0, share))
    return _share(
        wanted,
        lambda share: _all_slots(machines, cpus_per_actor or SMALLEST_SHARE, share),
        lambda share: _all_slots(_roomy(machines), SMALLEST_SHARE, share),
    )


def _cpu_share(gpus_per_actor: float, machines: Sequence[Machine], wanted: int) -> float:
    """The largest share of a core with which all wanted actors fit, beside their shares of GPUs."""
    beside_gpus = _share(
        wanted,
        lambda share: _all_slots(machines, share, gpus_per_actor),
        lambda share: _all_slots(_roomy(machines), share, 0.0),
    )
    return beside_gpus or 1.0


def _roomy(machines: Sequence[Machine]) -> list[Machine]:
    """The same with more memory than anything needs: so that the refusal names GPUs and cores."""
    return [replace(machine, memory=math.inf) for machine in machines]


def _share(wanted: int, *slots: Callable[[float], int]) -> float:
    """The largest share of 1 with as many slots as wanted, by the first of the counts that has them; else 0."""
    for count in slots:
        low, high = 0, round(1 / SMALLEST_SHARE)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if count(middle * SMALLEST_SHARE) >= wanted else (low, middle - 1)
        if low:
            return _round(low * SMALLEST_SHARE)
    return 0.0


def _round(amount: float) -> float:
    return round(amount, 4)


def _slots(machine: Machine, cpus_per_actor: float, gpus_per_actor: float) -> int:
    """How many actors fit on a machine."""
    limits = [machine.memory / ACTOR_MEMORY, machine.cpus / cpus_per_actor + 1e-9]
    if gpus_per_actor >= 1:
        limits.append(machine.gpus // gpus_per_actor)
    elif gpus_per_actor:
        limits.append(math.floor(machine.gpus) * math.floor(1 / gpus_per_actor + 1e-9))
    return math.floor(min(limits))


def _all_slots(machines: Sequence[Machine], cpus_per_actor: float, gpus_per_actor: float) -> int:
    return sum(_slots(machine, cpus_per_actor, gpus_per_actor) for machine in machines)


def _deal(machines: Sequence[Machine], slots: Sequence[int], actors: int, gpus_per_actor: float) -> tuple[int, ...]:
    """Actors on each GPU: the next always goes to the GPU with the fewest, on the machine with the fewest."""
    size = max(1.0, gpus_per_actor)
    gpus = [[0] * math.floor(machine.gpus // size) for machine in machines]
    for _ in range(actors):
        open_machines = [k for k in range(len(machines)) if gpus[k] and sum(gpus[k]) < slots[k]]
        k = min(open_machines, key=lambda k: (min(gpus[k]), sum(gpus[k]), k))
        gpus[k][gpus[k].index(min(gpus[k]))] += 1
    return tuple(count for machine in gpus for count in machine if count)


def _nearest(layout: Layout, fitting: int, nodes: int) -> str:
    """The options of the nearest layout with at most `fitting` actors."""
    if fitting == 0:
        return "--in-process"
    return f"--nodes-per-actor {math.ceil(nodes / fitting)}" if layout.nodes_per_actor else f"--actors {fitting}"


def _does_not_fit(layout: Layout, machines: Sequence[Machine], actors: int, needs: str, nearest: str) -> InputError:
    """The error for a plan that does not fit; `needs` are the CPUs and GPUs of one actor."""
    field = "nodes_per_actor" if layout.nodes_per_actor else "actors" if layout.actors else "layout"
    wanted = f"{_counted(actors, 'actor')} with {needs} and {ACTOR_MEMORY / 1e6:.0f} MB{' each' * (actors > 1)}"
    amounts = f"{sum(m.cpus for m in machines):g} CPUs, {sum(m.gpus for m in machines):g} GPUs"
    memory = f"{sum(m.memory for m in machines) / 1e9:.1f} GB"
    free = f"{amounts} and {memory} are free on {_counted(len(machines), 'machine')}"
    problem = "do not fit" if actors > 1 else "does not fit"
    return InputError(field, Shown(wanted), free, f"the nearest that fits: {nearest}", problem=problem)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
