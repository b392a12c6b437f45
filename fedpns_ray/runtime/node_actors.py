"""Node actors, started in the bundles of a placement group, and the driver of a run that they answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fedpns_ray.core.training import Worker
from fedpns_ray.data import Population
from fedpns_ray.experiment import Experiment
from fedpns_ray.runtime.actor_group import ActorGroup, answers
from fedpns_ray.runtime.dealer import Dealer
from fedpns_ray.runtime.driver import Driver, Recording, begun
from fedpns_ray.runtime.hardware import merged
from fedpns_ray.runtime.layout import Plan
from fedpns_ray.runtime.node_actor import NodeActor


@dataclass(frozen=True)
class Place:
    """Where the actors of a run live."""

    plan: Plan
    placement: PlacementGroup
    name: str
    """Of the run, which its actors carry in theirs."""


@contextmanager
def on_node_actors(
    experiment: Experiment,
    population: Any,
    place: Place,
    recording: Recording,
    say: Callable[[str], None],
) -> Iterator[Driver]:
    """A run that actors answer; they are gone afterwards. `population` is a reference: it is stored once a machine."""
    actors = _start(experiment, population, place)
    try:
        hosts = answers([actor.describe.remote() for actor in actors])
        if any(host["without_cuda"] for host in hosts):
            say("GPUs are assigned, but torch sees no CUDA: nodes train on the CPU, as cpu_fallback allows")
        data: Population = ray.get(population)
        worker = Worker(experiment, data)
        costs = data.sizes.astype(np.float64) * experiment.epochs
        dealer = Dealer(ActorGroup(actors, say), worker, costs, place.plan.nodes_per_actor)
        hardware = merged(host["hardware"] for host in hosts)
        yield Driver(begun(experiment, data, worker), data, dealer.answer, hardware, recording)
    finally:
        for actor in actors:
            ray.kill(actor)


def _start(experiment: Experiment, population: Any, place: Place) -> list[Any]:
    """Every actor in its bundle; those in one bundle share its GPU."""
    plan = place.plan
    homes = [bundle for bundle, count in enumerate(plan.actors_in) for _ in range(count)]
    return [
        NodeActor.options(  # type: ignore[attr-defined]
            name=f"{place.name}, node actor {k}",
            num_cpus=plan.cpus_per_actor,
            num_gpus=plan.gpus_per_actor,
            max_restarts=-1,
            scheduling_strategy=PlacementGroupSchedulingStrategy(place.placement, placement_group_bundle_index=bundle),
        ).remote(experiment, population, plan.cpu_fallback)
        for k, bundle in enumerate(homes)
    ]
