"""Node actors, started in the bundles of a placement group, and the driver of a run that they answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fedpns_ray.core.training import Worker
from fedpns_ray.data import Population
from fedpns_ray.errors import LostError, one_line
from fedpns_ray.experiment import Experiment
from fedpns_ray.runtime.actor_group import FETCHED_WITHIN, LOOK_EVERY, ActorGroup, answers
from fedpns_ray.runtime.deadlines import Deadline, simulated_delay
from fedpns_ray.runtime.dealer import Dealer
from fedpns_ray.runtime.driver import Driver, Recording, begun
from fedpns_ray.runtime.hardware import merged
from fedpns_ray.runtime.layout import MANY, Plan
from fedpns_ray.runtime.node_actor import NodeActor

logger = logging.getLogger(__name__)

STARTED_WITHIN = 300.0
"""Seconds for one more node actor to start: it imports torch and gets its data."""
LONGER_EACH = 3.0
"""Seconds more for each of many actors, which start together and slow each other down."""
AT_MOST = 600.0
SAID_EVERY = 5.0
"""Seconds between two messages while node actors start."""


@dataclass(frozen=True)
class Place:
    """Where the actors of a run are placed."""

    plan: Plan
    placement: PlacementGroup
    name: str
    """The run's name, which begins the names of its actors."""


@contextmanager
def on_node_actors(experiment: Experiment, population: Any, place: Place, recording: Recording) -> Iterator[Driver]:
    """A run that actors answer; they are killed afterwards. `population` is a reference: stored once per machine."""
    actors = _start(experiment, population, place)
    try:
        hosts = _described(actors)
        if any(host["without_cuda"] for host in hosts):
            logger.warning("GPUs are assigned, but torch sees no CUDA: nodes train on the CPU, as cpu_fallback allows")
        data: Population = ray.get(population, timeout=FETCHED_WITHIN)
        worker = Worker(experiment, data)
        costs = data.sizes.astype(np.float64) * experiment.epochs
        group = ActorGroup(actors, Deadline(place.plan.layout.patience, simulated_delay(experiment)))
        dealer = Dealer(group, worker, costs, place.plan.layout.nodes_per_actor)
        hardware = merged(host["hardware"] for host in hosts)
        driver = Driver(begun(experiment, data, worker), data, dealer.answer, hardware, recording)
        driver.faults = group.faults
        yield driver
    finally:
        for actor in actors:
            ray.kill(actor)


def _described(actors: Sequence[Any]) -> list[dict[str, Any]]:
    """Every actor's description of itself, once it has started; one that is lost meanwhile is restarted by Ray.

    An actor that cannot start because of an error never will: a package that its machine lacks, or other versions.
    """
    waiting = {actor.describe.remote(): k for k, actor in enumerate(actors)}
    found: dict[int, dict[str, Any]] = {}
    heard = said = time.monotonic()
    within = min(STARTED_WITHIN + LONGER_EACH * len(actors), AT_MOST)
    while waiting and time.monotonic() - heard < within:
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=LOOK_EVERY)
        for answer in ready:
            k = waiting.pop(answer)
            try:
                found[k], heard = answers(answer), time.monotonic()
            except RayActorError as error:
                waiting[_asked_again(actors[k], error)] = k
        if waiting and time.monotonic() - said > SAID_EVERY:
            logger.info("starting node actors: %d of %d are ready", len(found), len(actors))
            said = time.monotonic()
    if waiting:
        raise LostError(f"{len(waiting)} of {len(actors)} node actors are missing; none started within {within:.0f} s")
    if len(actors) >= MANY:
        logger.info("all %d node actors are ready", len(actors))
    return [found[k] for k in range(len(actors))]


def _asked_again(actor: Any, error: RayActorError) -> Any:
    lines = [line for line in str(error).splitlines() if line.strip()]
    if "creation task" in lines[0]:
        raise LostError(f"a node actor could not start ({one_line(lines[-1])})") from None
    time.sleep(1)
    return actor.describe.remote()


def _start(experiment: Experiment, population: Any, place: Place) -> list[Any]:
    """Start all actors, each in its bundle; actors in one bundle share its GPU."""
    plan = place.plan
    homes = [bundle for bundle, count in enumerate(plan.actors_in) for _ in range(count)]
    return [
        NodeActor.options(  # type: ignore[attr-defined]
            name=f"{place.name}, node actor {k}",
            num_cpus=plan.cpus_per_actor,
            num_gpus=plan.gpus_per_actor,
            max_restarts=-1,
            scheduling_strategy=PlacementGroupSchedulingStrategy(place.placement, placement_group_bundle_index=bundle),
        ).remote(experiment, population, plan.layout.cpu_fallback)
        for k, bundle in enumerate(homes)
    ]
