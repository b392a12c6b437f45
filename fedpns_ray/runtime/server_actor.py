"""ServerActor: the round loop, Optimal Aggregation, the probabilities and the record, in a process of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray
import torch

from fedpns_ray.experiment import Experiment
from fedpns_ray.records.record import Record
from fedpns_ray.records.result import Result
from fedpns_ray.runtime.driver import Following, Recording, follow
from fedpns_ray.runtime.gauges import Gauges
from fedpns_ray.runtime.news import News, Newsroom
from fedpns_ray.runtime.node_actors import Place, on_node_actors


@ray.remote
class ServerActor:
    """Owns a run. `run` works in one thread while `news` and `stop` answer in others.

    These threads share the newsroom, which has a lock, and the stop event; everything else belongs to `run`, and to the
    gauges' thread the record that it shows.

    If its process is lost, Ray restarts it; the driver process then calls `run` again, which resumes from the
    checkpoint in the run folder.
    """

    def __init__(self, experiment: Experiment, place: Place, recording: Recording) -> None:
        torch.set_num_threads(1)
        self._experiment, self._place, self._recording = experiment, place, recording
        self._stop = threading.Event()
        self._newsroom = Newsroom()
        self._gauges = Gauges(place.name)

    def run(self, population: list[Any], reported: int | None = None, faults: Sequence[str] = ()) -> Result | None:
        """`population` is a reference within a list, so that it is passed on as a reference.

        `reported` is the last round that was reported, if a former process of the server was lost, and `faults` are
        what went wrong with it, for the next record.
        """
        (reference,) = population
        place = self._place
        if ray.get_runtime_context().was_current_actor_reconstructed:  # the old actors may still be there
            place = replace(place, name=f"{place.name}, restarted in {os.getpid()}")
        node_actors = on_node_actors(self._experiment, reference, place, self._recording)
        with self._newsroom, self._gauges, node_actors as driver:
            driver.faults.extend(faults)
            return follow(driver, Following(self._on_round, self._stop.is_set), reported)

    def _on_round(self, record: Record) -> None:
        self._newsroom.add(record)
        self._gauges.show(record)

    def news(self, after: int) -> News:
        """Records of the rounds after this one, and log messages since the last call."""
        return self._newsroom.since(after)

    def pid(self) -> int:
        return os.getpid()

    def stop(self) -> None:
        self._stop.set()
