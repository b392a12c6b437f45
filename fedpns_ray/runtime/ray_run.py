"""A run on Ray, as its driver process sees it: plan, start, follow, clean up."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedpns_ray.data import Population
from fedpns_ray.errors import InputError, LostError, Shown
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.result import Result
from fedpns_ray.runtime.arrivals import Arrivals
from fedpns_ray.runtime.deadlines import Deadline, simulated_delay
from fedpns_ray.runtime.driver import Following, Recording
from fedpns_ray.runtime.layout import Layout, Machine, Plan, plan
from fedpns_ray.runtime.lookout import guarded
from fedpns_ray.runtime.node_actors import Place
from fedpns_ray.runtime.server_actor import ServerActor
from fedpns_ray.runtime.server_watch import ServerWatch
from fedpns_ray.runtime.session import machines, machines_to_come

PLACED_WITHIN = 60.0
"""Seconds within which planned bundles must be placed; they fit, so after that, something else took the resources."""
LOOK_EVERY = 1.0
"""Seconds between two looks at machines that are awaited."""
FREED_WITHIN = 10.0
"""Seconds to wait for resources that others hold."""
TOLD_WITHIN = 1.0
"""Seconds for a server to receive the stop when its cluster is lost."""
SERVER_RESTARTS = 3

logger = logging.getLogger(__name__)

_numbers = itertools.count(1)


def run_on_ray(
    experiment: Experiment, population: Population, layout: Layout, recording: Recording, following: Following
) -> Result | None:
    """Run an experiment on the Ray that is initialised; None if it was stopped before its end."""
    planned, coming = _planned(layout, experiment)
    context = ray.get_runtime_context()
    name = f"{experiment.label} seed {experiment.seed} ({context.get_job_id()}-{next(_numbers)})"
    with _placed(planned, coming, following.stop) as group:
        if group is None:
            return None
        start = ServerActor.options(  # type: ignore[attr-defined]
            name=f"{name}, server",
            num_cpus=0,
            max_concurrency=4,
            max_restarts=SERVER_RESTARTS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(context.get_node_id(), soft=False),  # where `out` is
        ).remote
        words = planned.announce(sum(machine.cpus for machine in guarded(machines, whole=True)))
        logger.info("%s", words or f"Ray: {planned.describe()}")
        server = guarded(start, experiment, Place(planned, group, name), recording)
        try:
            patience = layout.patience
            deadlines = Deadline(patience), Deadline(patience, simulated_delay(experiment))
            result = ServerWatch(server, guarded(ray.put, population), following, deadlines).follow()
            if recording.timeline:
                guarded(ray.timeline, filename=str(recording.timeline))
            return result
        except LostError:
            with suppress(RayError):  # it may still be there, and would keep writing to a folder that others need
                ray.wait([server.stop.remote()], timeout=TOLD_WITHIN)
            raise
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except RayActorError as error:
            raise LostError(f"the server of the run was lost {SERVER_RESTARTS + 1} times ({error})") from error
        finally:
            with suppress(LostError):
                guarded(ray.kill, server)


def _planned(layout: Layout, experiment: Experiment) -> tuple[Plan, bool]:
    """A plan, and whether it needs machines that the autoscaler has yet to start.

    Machines that are free come first. What would fit once other jobs release their resources is awaited for a short
    time; only then are more machines started, as few as the layout fits on.
    """

    def fitting(there: Sequence[Machine]) -> Plan | None:
        with suppress(InputError):
            return plan(layout, there, experiment.nodes, experiment.trained_per_round)
        return None

    deadline = time.monotonic() + FREED_WITHIN
    while True:
        free, whole = guarded(machines), guarded(machines, whole=True)
        if now := fitting(free):
            return now, False
        coming = guarded(machines_to_come)
        late = time.monotonic() > deadline
        if late or not fitting(whole):
            for count in range(1, len(coming) + 1):
                if then := fitting([*free, *coming[:count]]):
                    return then, True
        if late or not fitting([*whole, *coming]):  # it never fits, and that is said at once
            there = [*free, *coming] if late else [*whole, *coming]
            return plan(layout, there, experiment.nodes, experiment.trained_per_round), bool(coming)
        logger.info("the machines are busy; trying again for %.0f s", deadline - time.monotonic())
        time.sleep(1)


@contextmanager
def _placed(planned: Plan, coming: bool, stop: Callable[[], bool]) -> Iterator[PlacementGroup | None]:
    """The plan's bundles, in their places; None if a stop was asked for while its machines were awaited."""
    free = _free_cpus()
    group = guarded(placement_group, list(planned.bundles), strategy="SPREAD")
    try:
        if coming:
            arrivals = Arrivals(planned.describe())
            yield group if arrivals.wait(lambda: guarded(group.wait, LOOK_EVERY), stop) else None
            return
        if not guarded(group.wait, PLACED_WITHIN):
            raise InputError(
                "layout",
                Shown(planned.describe()),
                problem=f"could not be placed within {PLACED_WITHIN:.0f} s, although it fitted when the run started",
                hint="something else took the resources",
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
