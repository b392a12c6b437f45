"""Driver: has a run answered, records it, and takes its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fedpns_ray.core.run import Record, Run, known_nodes
from fedpns_ray.core.training import Worker
from fedpns_ray.core.user_code import blamed_on
from fedpns_ray.core.work import Answer, Work
from fedpns_ray.data import Population
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.lines import finite
from fedpns_ray.records.result import Result
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.summary import summarise
from fedpns_ray.runtime.hardware import Hardware

CHECKPOINT_EVERY = 10
"""Rounds between two checkpoints; what comes after the last one is done again, to the same bits."""


@dataclass(frozen=True)
class Recording:
    """Where a run is recorded, if anywhere, and how often it takes a checkpoint."""

    out: Path | None = None
    checkpoint_every: int = CHECKPOINT_EVERY


def begun(experiment: Experiment, population: Population, worker: Worker) -> Run:
    """A run before its first round. The worker gives the initial weights, and evaluates Check Loss."""
    strategy, weights = experiment.build_strategy(), worker.initial_weights
    nodes = known_nodes(experiment, population.sizes, population.iid, weights.nbytes)
    strategy.begin(nodes)
    return Run(experiment, nodes, strategy, worker, weights)


class Driver:
    """One run, and the folder that it is recorded in. `answer` is whoever does the work: a worker, or actors.

    As a context manager it leaves the folder whole: finished, or with a checkpoint where the run stands.
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
        self._saved = 0
        self._records: list[Record] = []
        self._folder: RunFolder | None = None

    def __enter__(self) -> Driver:
        if self._recording.out:
            self._folder = RunFolder(self._recording.out)
            if state := self._folder.open(self._run.experiment, needed=self._run.checkpoint()):
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

    def step(self) -> Record | None:
        """Drive the run to its next record; None when it is over."""
        with blamed_on(self._run.experiment.user_packages):
            while (work := self._run.ask()) is not None:
                record = self._run.tell(self._answer(work))
                if record is not None:
                    return self._keep(finite(record))
        return None

    def _keep(self, record: Record) -> Record:
        if self._folder is None:
            self._records.append(record)
            return record
        self._folder.append(record)  # not kept as well: a long run does not grow
        t, diverged = record["round"], "diverged" in record
        if not diverged and (t % self._recording.checkpoint_every == 0 or t == self._run.experiment.rounds):
            self._checkpoint()
        return record

    def _checkpoint(self) -> None:
        assert self._folder is not None
        self._folder.checkpoint(self._run.checkpoint())
        self._saved = self._run.round

    def finish(self) -> Result:
        """Of a run that is over: summarised, and written to its folder."""
        run, folder = self._run, self._folder
        records = folder.records() if folder else self._records
        summary = summarise(run.experiment, records, run.weights, self._population.summary(), self._hardware)
        if folder:
            folder.finish(run.weights, summary)
        return Result(run.experiment, records, summary, run.weights, self._recording.out)


def follow(driver: Driver, on_round: Callable[[Record], None], stop: Callable[[], bool]) -> Result | None:
    """Drive a run to its end, or until `stop`, asked after every round but the last, says so: then None comes back."""
    with driver:
        while (record := driver.step()) is not None:
            on_round(record)
            if stop() and not driver.over:
                return None
        return driver.finish()
