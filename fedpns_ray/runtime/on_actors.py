"""An experiment served over node actors, in the bundles of a placement group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population
from fedpns_ray.hardware import merged
from fedpns_ray.runtime.actor_group import ActorGroup, answers
from fedpns_ray.runtime.layout import Plan
from fedpns_ray.runtime.node_actor import NodeActor
from fedpns_ray.runtime.ray_executor import RayExecutor
from fedpns_ray.runtime.server import Serving, serve
from fedpns_ray.training import Worker


def serve_on_actors(
    experiment: Experiment,
    population: Any,
    plan: Plan,
    placement: PlacementGroup,
    name: str,
    out: Path | None,
    checkpoint_every: int,
    say: Callable[[str], None],
) -> Serving:
    """`population` is a reference: it lies in the object store once a machine. The actors go when the serving ends."""
    actors = _start_actors(experiment, population, plan, placement, name)
    try:
        places = answers([actor.describe.remote() for actor in actors])
        if any(place["without_cuda"] for place in places):
            say("GPUs are assigned, but torch sees no CUDA: nodes train on the CPU, as cpu_fallback allows")
        data: Population = ray.get(population)
        worker = Worker(experiment, data)
        costs = data.sizes.astype(np.float64) * experiment.epochs
        hardware = merged(place["hardware"] for place in places)
        executor = RayExecutor(ActorGroup(actors, say), worker, hardware, costs, plan.nodes_per_actor)
        return (yield from serve(experiment, data, executor, worker.initial_weights, out, checkpoint_every))
    finally:
        for actor in actors:
            ray.kill(actor)


def _start_actors(
    experiment: Experiment, population: Any, plan: Plan, placement: PlacementGroup, name: str
) -> list[Any]:
    """Every actor in its bundle; those in one bundle share its GPU."""
    homes = [bundle for bundle, count in enumerate(plan.actors_in) for _ in range(count)]
    return [
        NodeActor.options(  # type: ignore[attr-defined]
            name=f"{name}, node actor {k}",
            num_cpus=plan.cpus_per_actor,
            num_gpus=plan.gpus_per_actor,
            max_restarts=-1,
            scheduling_strategy=PlacementGroupSchedulingStrategy(placement, placement_group_bundle_index=bundle),
        ).remote(experiment, population, plan.cpu_fallback)
        for k, bundle in enumerate(homes)
    ]
