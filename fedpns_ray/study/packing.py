"""How trials share a cluster: what one trial takes and how many run at once. Refused here if not even one fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedpns_ray.errors import InputError, Shown
from fedpns_ray.runtime.layout import ACTORS_PER_GPU, Machine, Plan, plan
from fedpns_ray.study.study_file import Study

Bundle = dict[str, float]


@dataclass(frozen=True)
class Packing:
    """The bundles of one trial, and how many trials fit on the cluster at once."""

    bundles: tuple[Bundle, ...]
    at_once: int
    plan: Plan | None = None
    """The node actors, if a trial spreads over several."""
    cpu_fallback: bool = False
    """Whether a trial may train on the CPU if it is given a GPU that torch cannot use."""

    def describe(self) -> str:
        each = self.plan.describe() if self.plan else " and ".join(f"{v:g} {k}" for k, v in self.bundles[0].items())
        return f"{self.at_once} trial{'s' * (self.at_once > 1)} at once, {each}{'' if self.plan else ' each'}"


def pack(study: Study, machines: Sequence[Machine]) -> Packing:
    """A trial is one process with `cpus_per_trial` and `gpus_per_trial`, or spreads according to the study's layout."""
    if study.layout:
        largest = max((trial.experiment for trial in study.trials), key=lambda e: e.nodes)
        planned = plan(study.layout, machines, largest.nodes, largest.trained_per_round)
        return Packing(planned.bundles, _how_many(planned.bundles, machines), planned, planned.layout.cpu_fallback)
    gpus = sum(math.floor(machine.gpus) for machine in machines)
    share = study.gpus_per_trial
    if share is None:
        cpus = sum(machine.cpus for machine in machines if machine.gpus)
        share = round(1 / min(ACTORS_PER_GPU, max(1, cpus // (gpus * study.cpus_per_trial))), 4) if gpus else 0
    bundle: Bundle = {"CPU": study.cpus_per_trial, **({"GPU": share} if share else {})}
    at_once = _how_many((bundle,), machines)
    if not at_once:
        raise _does_not_fit(bundle, machines)
    return Packing((bundle,), at_once, cpu_fallback=study.cpu_fallback)


def holds(machines: Sequence[Machine], packing: Packing) -> bool:
    """Whether at least one trial fits on these machines."""
    return _how_many(packing.bundles, machines) > 0


def _how_many(bundles: Sequence[Bundle], machines: Sequence[Machine]) -> int:
    """How many trials fit, by first fit. A fraction of a GPU is never split over two."""
    free = [(machine.cpus, [1.0] * math.floor(machine.gpus)) for machine in machines]
    if len(bundles) == 1:  # the usual case, without a loop over thousands of trials
        return sum(_fitting(bundles[0], cpus, len(gpus)) for cpus, gpus in free)
    count = 0
    while all(_place(bundle, free) for bundle in bundles):
        count += 1
    return count


def _fitting(bundle: Bundle, cpus: float, gpus: int) -> int:
    limits = [math.floor(cpus / bundle["CPU"] + 1e-9)] if bundle.get("CPU") else []
    if share := bundle.get("GPU"):
        limits.append(gpus * math.floor(1 / share + 1e-9) if share <= 1 else math.floor(gpus / share))
    return min(limits)


def _place(bundle: Bundle, free: list[tuple[float, list[float]]]) -> bool:
    cpus, gpus = bundle.get("CPU", 0.0), bundle.get("GPU", 0.0)
    for k, (free_cpus, free_gpus) in enumerate(free):
        if free_cpus + 1e-9 < cpus:
            continue
        enough = [g for g, left in enumerate(free_gpus) if left + 1e-9 >= min(gpus, 1.0)][: max(1, math.ceil(gpus))]
        if gpus and len(enough) < math.ceil(gpus):
            continue
        if gpus:
            for g in enough:
                free_gpus[g] -= min(gpus, 1.0)
        free[k] = (free_cpus - cpus, free_gpus)
        return True
    return False


def _does_not_fit(bundle: Bundle, machines: Sequence[Machine]) -> InputError:
    needs = " and ".join(f"{amount:g} {what}" for what, amount in bundle.items())
    largest = max(machines, key=lambda machine: (machine.gpus, machine.cpus), default=Machine("none", 0, 0, 0))
    if bundle.get("GPU") and not any(machine.gpus for machine in machines):
        nearest = "gpus_per_trial: 0"
    elif bundle.get("GPU", 0) > largest.gpus:
        nearest = f"gpus_per_trial: {largest.gpus:g}"
    else:
        nearest = f"cpus_per_trial: {max((machine.cpus for machine in machines), default=0):g}"
    there = f"the largest has {largest.cpus:g} CPU and {largest.gpus:g} GPU"
    hint = f"the nearest that fits: {nearest}"
    return InputError("trial", Shown(needs), there, hint, problem="do not fit on any machine")
