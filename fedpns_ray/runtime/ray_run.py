"""A run on Ray, as its driver sees it: plan, start, follow, clean up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedpns_ray.core.run import Record
from fedpns_ray.data import Population
from fedpns_ray.errors import InputError, LostError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.result import Result
from fedpns_ray.runtime.driver import Recording
from fedpns_ray.runtime.layout import Layout, Plan, plan
from fedpns_ray.runtime.lookout import guarded
from fedpns_ray.runtime.news import News
from fedpns_ray.runtime.node_actors import Place
from fedpns_ray.runtime.server_actor import ServerActor
from fedpns_ray.runtime.session import machines

PLACED_WITHIN = 60.0
"""Seconds in which planned bundles must be placed; they fit by the plan, so longer means that somebody else took them."""
FREED_WITHIN = 10.0
"""Seconds to wait for resources that others hold."""
LOOK_EVERY = 0.2
"""Seconds between two looks at a running server."""
STOPPED_WITHIN = 1.0
"""Seconds for a server to hear that its cluster is lost."""
SERVER_RESTARTS = 3

_numbers = itertools.count(1)


def run_on_ray(
    experiment: Experiment,
    population: Population,
    layout: Layout,
    recording: Recording,
    on_round: Callable[[Record], None],
    stop: Callable[[], bool],
    say: Callable[[str], None],
    timeline: Path | None,
) -> Result | None:
    """Run an experiment on the Ray that is initialised; None if it was asked to stop before its end."""
    planned = _planned(layout, experiment, say)
    context = ray.get_runtime_context()
    name = f"{experiment.label} seed {experiment.seed} ({context.get_job_id()}-{next(_numbers)})"
    with _placed(planned) as group:
        start = ServerActor.options(  # type: ignore[attr-defined]
            name=f"{name}, server",
            num_cpus=0,
            max_concurrency=4,
            max_restarts=SERVER_RESTARTS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(context.get_node_id(), soft=False),  # where `out` is
        ).remote
        server = guarded(start, experiment, Place(planned, group, name), recording)
        try:
            result = _follow(server, guarded(ray.put, population), on_round, stop, say)
            if timeline:
                guarded(ray.timeline, filename=str(timeline))
            return result
        except LostError:
            with suppress(RayError):  # it may be there still, and would go on in a folder that others want
                ray.wait([server.stop.remote()], timeout=STOPPED_WITHIN)
            raise
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except RayActorError as error:
            raise LostError(f"the server of the run was lost {SERVER_RESTARTS + 1} times ({error})") from error
        finally:
            with suppress(LostError):
                guarded(ray.kill, server)


def _planned(layout: Layout, experiment: Experiment, say: Callable[[str], None]) -> Plan:
    """A plan for what is free. What would fit if others let go is waited for, aloud and not for long."""
    drawn = experiment.build_strategy().selection.trains(experiment.per_round)
    deadline = time.monotonic() + FREED_WITHIN
    while True:
        try:
            return plan(layout, guarded(machines), experiment.nodes, drawn)
        except InputError:
            plan(layout, guarded(machines, whole=True), experiment.nodes, drawn)  # never fits: refused at once
            if time.monotonic() > deadline:
                raise
            say(f"the machines are busy; trying again for {deadline - time.monotonic():.0f} s")
            time.sleep(1)


def _follow(
    server: Any,
    population: Any,
    on_round: Callable[[Record], None],
    stop: Callable[[], bool],
    say: Callable[[str], None],
) -> Result | None:
    """Tell of every round until the run is over.

    A server that Ray has started again is asked to go on from here: Ray's own retries fill the terminal when its control
    store is gone. One that was lost too often answers nothing any more.
    """
    run = server.run.remote([population])
    ask = server.news.options(enable_task_events=False)  # no line in the dashboard for every look
    told = 0

    def look() -> tuple[bool, News]:
        done, _ = ray.wait([run], timeout=LOOK_EVERY)
        return bool(done), ray.get(ask.remote(told))

    while True:
        try:
            done, news = guarded(look)
        except ActorUnavailableError:
            continue
        for message in news.messages:
            say(message)
        for record in news.records:
            on_round(record)
            told = record["round"]
        if done:
            try:
                return guarded(ray.get, run)
            except RayActorError:
                run = server.run.remote([population])
        if stop():
            server.stop.remote()  # again and again: a server that was restarted has not heard of it


@contextmanager
def _placed(planned: Plan) -> Iterator[PlacementGroup]:
    free = _free_cpus()
    group = guarded(placement_group, list(planned.bundles), strategy="SPREAD")
    try:
        if not guarded(group.wait, PLACED_WITHIN):
            raise InputError(
                f"layout: {planned.describe()} could not be placed within {PLACED_WITHIN:.0f} s, though they fit when "
                "the run began; something else took the resources"
            )
        yield group
    finally:
        with suppress(LostError):
            guarded(remove_placement_group, group)
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline and _free_cpus() < free:
                time.sleep(0.05)  # so that the next plan sees them free


def _free_cpus() -> float:
    return sum(machine.cpus for machine in guarded(machines))
