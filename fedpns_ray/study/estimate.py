"""Estimates how long a study will take: times two rounds of every kind of trial on a worker of this cluster."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from fedpns_ray.core.threads import one_thread
from fedpns_ray.data import build_population
from fedpns_ray.errors import LostError
from fedpns_ray.experiment import Experiment
from fedpns_ray.runtime.actor_group import FETCHED_WITHIN, answers
from fedpns_ray.runtime.in_process import in_process
from fedpns_ray.runtime.node_actor import assigned_device
from fedpns_ray.study.packing import Packing
from fedpns_ray.study.study_file import Trial

Workload = tuple[Any, ...]
WARM_UP = 1
TIMED = 2
TIMED_WITHIN = 600.0
"""Seconds for those rounds."""


def workload(experiment: Experiment) -> Workload:
    """Experiments with the same workload take about the same time per round."""
    e = experiment
    return (
        e.data_name,
        e.model,
        e.trained_per_round,
        e.samples_per_node,
        e.epochs,
        e.batch_size,
        e.vectorize,
        e.compression,
        e.evaluate_every == 1,
    )


def estimate(trials: Sequence[Trial], packing: Packing, samples: dict[str, Any]) -> float:
    """Seconds until the last trial ends, if nothing else runs on the cluster."""
    kinds = {workload(trial.experiment): trial.experiment for trial in trials}
    seconds: dict[Workload, float] = {}
    for kind, e in kinds.items():
        takes = packing.bundles_of(e)[0]
        timed = ray.remote(num_cpus=takes.get("CPU", 0), num_gpus=takes.get("GPU", 0))(_seconds_per_round)
        own = [samples[e.data_name]] if e.data_name in samples else []
        try:
            seconds[kind] = answers(timed.remote(e, own, packing.cpu_fallback), TIMED_WITHIN)
        except GetTimeoutError:
            raise LostError(f"{e.label} did not finish {TIMED} rounds within {TIMED_WITHIN:.0f} s") from None
    actors = packing.plan.actors if packing.plan else 1
    costs = [trial.experiment.rounds * seconds[workload(trial.experiment)] / actors for trial in trials]
    return max([sum(costs) / packing.at_once, *costs])


def _seconds_per_round(experiment: Experiment, samples: list[Any], cpu_fallback: bool) -> float:
    e = experiment.but(rounds=WARM_UP + TIMED)
    with one_thread():
        population = build_population(e, ray.get(samples[0], timeout=FETCHED_WITHIN) if samples else None)
        with in_process(e, population, device=assigned_device(cpu_fallback)) as driver:
            records = [record for _ in range(e.rounds) if (record := driver.step())]
    return statistics.median(record.seconds for record in records[WARM_UP:])
