"""How trials share a cluster: what one trial takes and how many run at once. Refused here if not even one fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedpns_ray.errors import InputError, Shown
from fedpns_ray.experiment import Experiment
from fedpns_ray.runtime.layout import ACTORS_PER_GPU, Machine, Plan, plan
from fedpns_ray.study.study_file import Study

Bundle = dict[str, float]

FASTER_ON_A_CORE = ("mlr",)
"""Models that train faster on one core than on a GPU, which would mostly wait for launches: such trials take no GPU
unless told to, and so fill machines without one, too."""


@dataclass(frozen=True)
class Packing:
    """The bundles of one trial, and how many trials fit on the cluster at once."""

    bundles: tuple[Bundle, ...]
    at_once: int
    plan: Plan | None = None
    """The node actors, if a trial spreads over several."""
    cpu_fallback: bool = False
    """Whether a trial may train on the CPU if it is given a GPU that torch cannot use."""
    on_cores: Bundle | None = None
    """What trials take whose model is faster on a core, if the others take GPUs; None: all take the same."""

    def describe(self) -> str:
        each = self.plan.describe() if self.plan else f"{_words(self.bundles[0])} each"
        each += f" ({', '.join(FASTER_ON_A_CORE)}: {_words(self.on_cores)})" if self.on_cores else ""
        return f"{self.at_once} trial{'s' * (self.at_once > 1)} at once, {each}"

    def bundles_of(self, experiment: Experiment) -> tuple[Bundle, ...]:
        return (self.on_cores,) if self.on_cores and _is_faster_on_a_core(experiment) else self.bundles


def _words(bundle: Bundle) -> str:
    return " and ".join(f"{amount:g} {what}" for what, amount in bundle.items())


def _is_faster_on_a_core(experiment: Experiment) -> bool:
    return experiment.model in FASTER_ON_A_CORE


def pack(study: Study, machines: Sequence[Machine]) -> Packing:
    """A trial is one process with `cpus_per_trial` and `gpus_per_trial`, or spreads according to the study's layout."""
    if study.layout:
        largest = max((trial.experiment for trial in study.trials), key=lambda e: e.nodes)
        planned = plan(study.layout, machines, largest.nodes, largest.trained_per_round)
        return Packing(planned.bundles, _how_many(planned.bundles, machines), planned, planned.layout.cpu_fallback)
    on_cores: Bundle = {"CPU": study.cpus_per_trial}
    small = sum(_is_faster_on_a_core(trial.experiment) for trial in study.trials)
    share = study.gpus_per_trial
    if share is None:
        share = 0 if small == len(study.trials) else _default_share(study.cpus_per_trial, machines)
    bundle = on_cores | ({"GPU": share} if share else {})
    at_once = _how_many((bundle,), machines)
    if not at_once:
        raise _does_not_fit(bundle, machines)
    if small and share and study.gpus_per_trial is None:
        beside = sum(_fitting(on_cores, m.cpus - _taken(bundle, m), 0) for m in machines)
        return Packing((bundle,), at_once + min(small, beside), None, study.cpu_fallback, on_cores)
    return Packing((bundle,), at_once, cpu_fallback=study.cpu_fallback)


def _default_share(cpus: float, machines: Sequence[Machine]) -> float:
    """The largest share of a GPU, at least 1 / ACTORS_PER_GPU, with which most trials run at once; 0 without GPUs."""
    if not any(machine.gpus for machine in machines):
        return 0.0
    shares = [round(1 / trials, 4) for trials in range(1, ACTORS_PER_GPU + 1)]
    return max(shares, key=lambda share: _how_many(({"CPU": cpus, "GPU": share},), machines))


def _taken(bundle: Bundle, machine: Machine) -> float:
    """CPUs of a machine that is filled with such trials."""
    return _fitting(bundle, machine.cpus, math.floor(machine.gpus)) * bundle.get("CPU", 0.0)


def holds(machines: Sequence[Machine], packing: Packing) -> bool:
    """Whether at least one trial fits on these machines."""
    kinds = [packing.bundles, *([(packing.on_cores,)] if packing.on_cores else [])]
    return any(_how_many(bundles, machines) > 0 for bundles in kinds)


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
    needs = _words(bundle)
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
