"""How long a study will take: two rounds of every kind of trial, timed now, on a worker of this cluster."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import ray

from fedpns_ray.core.training import one_thread
from fedpns_ray.data import build_population
from fedpns_ray.experiment import Experiment
from fedpns_ray.runtime.actor_group import answers
from fedpns_ray.runtime.in_process import in_process
from fedpns_ray.runtime.node_actor import assigned_device
from fedpns_ray.study.packing import Packing, drawn
from fedpns_ray.study.study_file import Trial

Workload = tuple[Any, ...]
WARM_UP = 1
TIMED = 2


def workload(experiment: Experiment) -> Workload:
    """Experiments that share it take about the same time a round."""
    e = experiment
    return (
        e.dataset,
        e.model,
        drawn(e),
        e.samples_per_node,
        e.epochs,
        e.batch_size,
        e.vectorize,
        e.evaluate_every == 1,
    )


def estimate(trials: Sequence[Trial], packing: Packing, samples: dict[str, Any]) -> float:
    """Seconds until the last trial ends, if nobody else uses the cluster."""
    kinds = {workload(trial.experiment): trial.experiment for trial in trials}
    resources = {"num_cpus": packing.bundles[0].get("CPU", 0), "num_gpus": packing.bundles[0].get("GPU", 0)}
    timed = ray.remote(**resources)(_seconds_a_round)
    seconds: dict[Workload, float] = {
        kind: answers(
            timed.remote(
                experiment,
                [samples[experiment.dataset]] if experiment.dataset in samples else [],
                packing.cpu_fallback,
            )
        )
        for kind, experiment in kinds.items()
    }
    actors = packing.plan.actors if packing.plan else 1
    costs = [trial.experiment.rounds * seconds[workload(trial.experiment)] / actors for trial in trials]
    return max([sum(costs) / packing.at_once, *costs])


def _seconds_a_round(experiment: Experiment, samples: list[Any], cpu_fallback: bool) -> float:
    e = experiment.but(rounds=WARM_UP + TIMED)
    with one_thread():
        population = build_population(e, ray.get(samples[0]) if samples else None)
        with in_process(e, population, device=assigned_device(cpu_fallback)) as driver:
            records = [record for _ in range(e.rounds) if (record := driver.step())]
    return statistics.median(record["seconds"] for record in records[WARM_UP:])
