"""Several runs in one process, answered together: each asks, is told and is recorded exactly as if it were alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from fedpns_ray.core.fused import FusedWorker
from fedpns_ray.core.training import Worker
from fedpns_ray.core.work import Answer, Work
from fedpns_ray.data import Population
from fedpns_ray.errors import one_line
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.record import Record
from fedpns_ray.records.result import Result
from fedpns_ray.runtime.driver import Driver, Recording, begun
from fedpns_ray.runtime.gpu_memory import refuse_beyond_gpu
from fedpns_ray.runtime.hardware import hardware

logger = logging.getLogger(__name__)


class FusedDriver:
    """Runs in lock step. One that ends, diverges or fails leaves, and the others continue.

    As a context manager it leaves every folder complete: finished, or with a checkpoint of the last round; a run that
    failed keeps the checkpoint that it had.
    """

    def __init__(self, drivers: Sequence[Driver], answer: Callable[[dict[int, Work]], dict[int, Answer]]) -> None:
        """`answer` does the work of all runs that ask for some, by their positions."""
        self._answer, self._together = answer, True
        self.living = dict(enumerate(drivers))
        """The runs that are under way."""
        self.results: dict[int, Result] = {}
        self.errors: dict[int, Exception] = {}

    def __enter__(self) -> FusedDriver:
        for run, driver in list(self.living.items()):
            with self.leaving(run):
                driver.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for run, driver in list(self.living.items()):
            with self.leaving(run):
                driver.__exit__(kind, error, trace)

    @contextmanager
    def leaving(self, run: int) -> Iterator[None]:
        """An error within is this run's own: it leaves, and the others do not notice."""
        try:
            yield
        except Exception as error:
            self.errors[run] = error
            if driver := self.living.pop(run, None):
                driver.__exit__(type(error), error, error.__traceback__)

    def step(self) -> dict[int, Record]:
        """One answer for every run that is under way; returns the records of the rounds that these have completed."""
        asked: dict[int, Work] = {}
        for run in list(self.living):
            with self.leaving(run):
                if (work := self._ask(run)) is not None:
                    asked[run] = work
        records: dict[int, Record] = {}
        for run, answer in self._answers(asked).items():
            with self.leaving(run):
                if (record := self.living[run].tell(answer)) is not None:
                    records[run] = record
        return records

    def _ask(self, run: int) -> Work | None:
        """What a run needs. Losses that it wants to know before it draws are answered at once; one that is over leaves.

        So runs that probe their nodes train in the same steps as those that do not.
        """
        driver = self.living[run]
        while (work := driver.ask()) is not None and work.probe:
            driver.tell(driver.answer(work))
        if work is None:
            self.results[run] = driver.finish()
            driver.__exit__(None, None, None)
            del self.living[run]
        return work

    def _answers(self, asked: dict[int, Work]) -> dict[int, Answer]:
        """The answers. If they cannot be had together, each run is answered alone: work may be done again."""
        if self._together:
            try:
                return self._answer(asked)
            except Exception as error:
                fault = f"could not be answered together ({one_line(f'{type(error).__name__}: {error}')})"
        found: dict[int, Answer] = {}
        for run, work in asked.items():
            with self.leaving(run):
                found[run] = self.living[run].answer(work)
                if self._together:
                    self.living[run].faults.append(fault)
        if self._together and len(found) == len(asked):  # the cause is no single run's: do not try again
            logger.warning("%d runs are no longer fused: %s", len(found), fault)
            self._together = False
        return found


def fused(
    experiments: Sequence[Experiment],
    populations: Sequence[Population],
    recordings: Sequence[Recording],
    device: str = "cpu",
) -> FusedDriver:
    """Runs that share shapes, answered by one worker in this process, on one device."""
    workers = [Worker(e, population, device) for e, population in zip(experiments, populations, strict=True)]
    together = FusedWorker(workers)
    refuse_beyond_gpu(together)
    drivers = []
    for k, (e, population, recording) in enumerate(zip(experiments, populations, recordings, strict=True)):
        run = begun(e, population, workers[k])
        on = hardware(device, together.training(k))
        drivers.append(Driver(run, population, workers[k].answer, on, recording))
    return FusedDriver(drivers, together.answer)
