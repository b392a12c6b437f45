"""A run on Ray, as its driver sees it: plan, start, follow, clean up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population
from fedpns_ray.errors import InputError
from fedpns_ray.result import Result
from fedpns_ray.rounds import Record
from fedpns_ray.runtime.layout import Layout, Plan, plan
from fedpns_ray.runtime.server_actor import News, ServerActor
from fedpns_ray.runtime.session import machines

PLACED_WITHIN = 60.0
"""Seconds in which planned bundles must be placed; they fit by the plan, so longer means that somebody else took them."""
LOOK_EVERY = 0.2
"""Seconds between two looks at a running server."""
SERVER_RESTARTS = 3

_numbers = itertools.count(1)


def run_on_ray(
    experiment: Experiment,
    population: Population,
    layout: Layout,
    out: Path | None,
    on_round: Callable[[Record], None],
    stop: Callable[[], bool],
    say: Callable[[str], None],
    timeline: Path | None = None,
) -> Result | None:
    """Run an experiment on the Ray that is initialised; None if it was asked to stop before its end."""
    drawn = int(experiment.parameters.get("candidates", experiment.per_round))
    planned = plan(layout, machines(), experiment.nodes, drawn)
    context = ray.get_runtime_context()
    name = f"{experiment.label} seed {experiment.seed} ({context.get_job_id()}-{next(_numbers)})"
    with _placed(planned) as group:
        server = ServerActor.options(  # type: ignore[attr-defined]
            name=f"{name}, server",
            num_cpus=0,
            max_concurrency=4,
            max_restarts=SERVER_RESTARTS,
            max_task_retries=SERVER_RESTARTS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(context.get_node_id(), soft=False),  # where `out` is
        ).remote(experiment, planned, group, out, name)
        try:
            result = _follow(server, ray.put(population), on_round, stop, say)
            if timeline:
                ray.timeline(filename=str(timeline))
            return result
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except RayActorError as error:
            raise RuntimeError(f"the server of the run was lost, {SERVER_RESTARTS + 1} times ({error})") from error
        finally:
            ray.kill(server)


def _follow(
    server: Any,
    population: Any,
    on_round: Callable[[Record], None],
    stop: Callable[[], bool],
    say: Callable[[str], None],
) -> Result | None:
    """Tell of every round until the run is over."""
    run = server.run.remote([population])
    told = News([], [])
    stopping = False
    while True:
        done, _ = ray.wait([run], timeout=LOOK_EVERY)
        try:
            news: News = ray.get(server.news.remote(len(told.records), len(told.messages)))
        except ActorUnavailableError:
            continue
        for record in news.records:
            on_round(record)
        for message in news.messages:
            say(message)
        told.records.extend(news.records)
        told.messages.extend(news.messages)
        if done:
            return ray.get(run)
        if stop() and not stopping:
            stopping = True
            server.stop.remote()


@contextmanager
def _placed(planned: Plan) -> Iterator[PlacementGroup]:
    group = placement_group(list(planned.bundles), strategy="SPREAD")
    try:
        if not group.wait(PLACED_WITHIN):
            raise InputError(
                f"layout: {planned.describe()} could not be placed within {PLACED_WITHIN:.0f} s, though they fit when "
                "the run began; something else took the resources"
            )
        yield group
    finally:
        remove_placement_group(group)
