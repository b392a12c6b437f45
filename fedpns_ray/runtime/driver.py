"""Driver: has a run's work done, records its rounds, and takes its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fedpns_ray.core.models import last_layer
from fedpns_ray.core.run import Run, known_nodes
from fedpns_ray.core.training import Worker
from fedpns_ray.core.user_code import blamed_on
from fedpns_ray.core.work import Answer, Work
from fedpns_ray.data import Population
from fedpns_ray.data.fit import with_timetable
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.labels import labels_of
from fedpns_ray.records.lines import finite
from fedpns_ray.records.record import Record, record_of
from fedpns_ray.records.result import Result
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.summary import summarise
from fedpns_ray.runtime.hardware import Hardware

CHECKPOINT_EVERY = 10
"""Rounds between two checkpoints; rounds after the last one are run again, to the same bits."""
CHECKPOINT_AFTER = 30.0
"""Seconds after which a checkpoint is due in any case: what a run that is ended by force loses at most."""


@dataclass(frozen=True)
class Recording:
    """Where a run is recorded, if anywhere, and how often it takes a checkpoint."""

    out: Path | None = None
    checkpoint_every: int = CHECKPOINT_EVERY
    timeline: Path | None = None
    """File for Ray's timeline of the run; only used on Ray."""

    def __post_init__(self) -> None:
        if self.checkpoint_every < 1:
            raise InputError("checkpoint_every", self.checkpoint_every, "it must be a whole number above 0")


@dataclass(frozen=True)
class Following:
    """Callbacks while a run is under way."""

    on_round: Callable[[Record], None] = lambda record: None
    """Called with the record of every round."""
    stop: Callable[[], bool] = lambda: False
    """Asked after every round but the last: True stops the run, with a checkpoint."""


def begun(experiment: Experiment, population: Population, worker: Worker) -> Run:
    """A run before its first round. The worker provides the initial weights and evaluates Check Loss."""
    strategy, weights = experiment.build_strategy(), worker.initial_weights
    buffers = len(weights) - len(worker.model.weights)
    layer = last_layer(worker.model.module)
    nodes = known_nodes(experiment, population.sizes, population.iid, worker.model.tensors, buffers, layer)
    nodes = with_timetable(nodes, experiment, population)
    strategy.begin(nodes)
    return Run(experiment, nodes, strategy, worker, weights)


class Driver:
    """One run, and the folder that it is recorded in. `answer` does the work: a worker, or actors.

    As a context manager it leaves the folder complete: finished, or with a checkpoint of the last round.
    """

    def __init__(
        self,
        run: Run,
        population: Population,
        answer: Callable[[Work], Answer],
        hardware: Hardware,
        recording: Recording,
    ) -> None:
        """`hardware` is what nodes train on."""
        self._run, self._population, self._answer, self._hardware = run, population, answer, hardware
        self._recording = recording
        self._saved, self._saved_at = 0, time.monotonic()
        self.faults: list[str] = []
        """What went wrong and was mended since the last record, which the next one will name."""
        self._records: list[Record] = []
        self._folder: RunFolder | None = None

    def __enter__(self) -> Driver:
        if self._recording.out:
            self._folder = RunFolder(self._recording.out)
            if state := self._folder.open(self._run.experiment, self._run.checkpoint(), self._hardware):
                self._run.restore(state)
                self._saved = self._run.round
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is None:
            return
        try:
            if error is None and not self._run.over and self._saved < self._run.round:
                self._checkpoint()
        finally:
            self._folder.close()

    @property
    def over(self) -> bool:
        return self._run.over

    def earlier(self, after: int) -> list[Record]:
        """The records that a resumed run starts with, from the round after this one."""
        return self._folder.records()[after : self._run.round] if self._folder else []

    def step(self) -> Record | None:
        """Drive the run to its next record; None when it is over."""
        while (work := self.ask()) is not None:
            if (record := self.tell(self.answer(work))) is not None:
                return record
        return None

    def ask(self) -> Work | None:
        """The work that the run needs now; None when it is over."""
        with blamed_on(self._run.experiment.user_packages):
            return self._run.ask()

    def answer(self, work: Work) -> Answer:
        with blamed_on(self._run.experiment.user_packages):
            return self._answer(work)

    def tell(self, answer: Answer) -> Record | None:
        """The record of the round that this answer has completed, if it has."""
        with blamed_on(self._run.experiment.user_packages):
            round = self._run.tell(answer)
            if round is None:
                return None
            return self._keep(finite(record_of(round, self._run.experiment.drop_probability > 0)))

    def _keep(self, record: Record) -> Record:
        if self.faults:
            record.faults = list(self.faults)
            self.faults.clear()
        if self._folder is None:
            self._records.append(record)
            return record
        self._folder.append(record)  # not kept in memory as well, so that a long run does not grow
        t, late = record.round, time.monotonic() - self._saved_at > CHECKPOINT_AFTER
        due = t % self._recording.checkpoint_every == 0 or t == self._run.experiment.rounds or late
        if due and not record.diverged:
            self._checkpoint()
        return record

    def _checkpoint(self) -> None:
        assert self._folder is not None
        self._folder.checkpoint(self._run.checkpoint())
        self._saved, self._saved_at = self._run.round, time.monotonic()

    def finish(self) -> Result:
        """The result of a run that is over, also written to its folder."""
        run, folder = self._run, self._folder
        records = folder.records() if folder else self._records
        population = {**self._population.summary(), **labels_of(self._population)}
        summary = summarise(run.experiment, records, run.weights, population, self._hardware)
        if folder:
            folder.finish(run.weights, summary)
        return Result(run.experiment, records, summary, run.weights, self._recording.out)


def follow(driver: Driver, following: Following, reported: int | None = None) -> Result | None:
    """Drive a run to its end; None if it was stopped before.

    `reported`: the last round that a former process has reported, where it was lost; later ones are reported again.
    """
    with driver:
        for before in driver.earlier(reported) if reported is not None else ():
            following.on_round(before)
        while (record := driver.step()) is not None:
            following.on_round(record)
            if following.stop() and not driver.over:
                return None
        return driver.finish()
