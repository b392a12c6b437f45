"""ServerActor: the round loop, Optimal Aggregation, the probabilities and the record, in a process of its own."""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from ray.util.metrics import Gauge
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population
from fedpns_ray.result import Result
from fedpns_ray.rounds import Record
from fedpns_ray.runtime.actor_group import ActorGroup
from fedpns_ray.runtime.layout import Plan
from fedpns_ray.runtime.node_actor import NodeActor
from fedpns_ray.runtime.ray_executor import RayExecutor
from fedpns_ray.runtime.server import serve
from fedpns_ray.training import Worker

NEWS = 1000
"""Records kept for `news`, which is asked several times a second."""


class News(NamedTuple):
    """What happened since somebody last asked."""

    records: list[Record]
    messages: list[str]


@ray.remote
class ServerActor:
    """Owns a run. `run` goes on in one thread while `news` and `stop` answer in others.

    If its process is lost, Ray starts it again and calls `run` again, which goes on from the folder's checkpoint.
    """

    def __init__(
        self,
        experiment: Experiment,
        plan: Plan,
        group: PlacementGroup,
        out: Path | None,
        name: str,
        checkpoint_every: int,
    ) -> None:
        torch.set_num_threads(1)
        self._experiment, self._plan, self._placement, self._out, self._name = experiment, plan, group, out, name
        self._checkpoint_every = checkpoint_every
        self._stop = threading.Event()
        self._records: deque[Record] = deque(maxlen=NEWS)
        self._messages: list[str] = []
        self._tell_gauges = _gauges(name)

    def run(self, population: list[Any]) -> Result | None:
        """`population` is a reference within a list, so that it is passed on as a reference."""
        (reference,) = population
        group = self._start_actors(reference)
        data: Population = ray.get(reference)
        worker = Worker(self._experiment, data)
        costs = data.sizes.astype(np.float64) * self._experiment.epochs
        executor = RayExecutor(group, worker, costs, self._plan.nodes_per_actor)
        return serve(
            self._experiment,
            data,
            executor,
            worker.initial_weights,
            self._out,
            self._on_round,
            self._stop.is_set,
            self._checkpoint_every,
        )

    def _start_actors(self, population: Any) -> ActorGroup:
        """Every actor in its bundle; those in one bundle share its GPU. Returns when all of them answer."""
        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        name = (
            f"{self._name}, restarted in {os.getpid()}" if restarted else self._name
        )  # the old actors may still be there
        homes = [bundle for bundle, count in enumerate(self._plan.actors_in) for _ in range(count)]
        actors = [
            NodeActor.options(  # type: ignore[attr-defined]
                name=f"{name}, node actor {k}",
                num_cpus=self._plan.cpus_per_actor,
                num_gpus=self._plan.gpus_per_actor,
                max_restarts=-1,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self._placement, placement_group_bundle_index=bundle
                ),
            ).remote(self._experiment, population)
            for k, bundle in enumerate(homes)
        ]
        places = ray.get([actor.describe.remote() for actor in actors])
        if any(place["without_cuda"] for place in places):
            self._messages.append("GPUs are assigned, but torch sees no CUDA: nodes train on the CPU")
        return ActorGroup(actors, self._messages.append)

    def _on_round(self, record: Record) -> None:
        self._records.append(record)
        self._tell_gauges(record)

    def news(self, after: int) -> News:
        """Records of the rounds after this one, and messages since the last call."""
        said = len(self._messages)
        messages, self._messages[:said] = self._messages[:said], []
        return News([record for record in self._records if record["round"] > after], messages)

    def pid(self) -> int:
        return os.getpid()

    def stop(self) -> None:
        self._stop.set()


def _gauges(run: str) -> Any:
    """Round, accuracy and seconds by phase as Ray metrics, for the dashboard and Prometheus."""
    round_, accuracy, seconds = (
        Gauge("fedpns_round", "rounds done", ("run",)),
        Gauge("fedpns_test_accuracy", "accuracy on the test set", ("run",)),
        Gauge("fedpns_seconds", "seconds of a round, by phase", ("run", "phase")),
    )

    def tell(record: Record) -> None:
        round_.set(record["round"], {"run": run})
        if record["test_accuracy"] is not None:
            accuracy.set(record["test_accuracy"], {"run": run})
        for phase, spent in record["seconds_by_phase"].items():
            seconds.set(spent, {"run": run, "phase": phase})

    return tell
