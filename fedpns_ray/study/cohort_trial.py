"""Fused trials: one trial of Tune's that runs several of the study's, each in its own folder.

A trial that fails, in its own code or in its folder, leaves its cohort; so do all of a cohort whose worker fails again
and again. They are run again alone, where failures are counted as usual.
"""

from __future__ import annotations

import logging
import time
from functools import cached_property
from types import TracebackType
from typing import Any, Literal

import ray

from fedpns_ray.data import Population, build_population
from fedpns_ray.errors import LostError, one_line
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import folder_name
from fedpns_ray.records.file_names import TRIALS
from fedpns_ray.records.record import Record
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.runtime.actor_group import FETCHED_WITHIN
from fedpns_ray.runtime.driver import Recording
from fedpns_ray.runtime.fused import FusedDriver, fused
from fedpns_ray.runtime.gauges import Gauges
from fedpns_ray.runtime.node_actor import assigned_device
from fedpns_ray.study.scratch import Scratch
from fedpns_ray.study.trial import COHORT, REPORT_EVERY, Terms, TrialReport, TrialRun, standing, take_from_others
from fedpns_ray.study.tune import Kind, Relay, reason

logger = logging.getLogger(__name__)

State = Literal["running", "done", "diverged", "waiting"]
"""Of a trial in a cohort. One that has left it waits, to be run alone."""


class Member:
    """One of the study's trials in a cohort: its folder, and how far it has come."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment, self.name = experiment, folder_name(experiment)
        self.scratch: Scratch | None = None
        self.gauges = Gauges(self.name)
        self.state: State = "running"
        self._round, self._best, self._diverged = 0, 0.0, False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the folder to the study; after an error, without what has not been copied there."""
        scratch, self.scratch = self.scratch, None
        self.gauges.__exit__(None, None, None)
        if scratch is not None:
            scratch.discard() if error else scratch.close()

    def open(self, terms: Terms, lost: set[str]) -> None:
        self.scratch = Scratch(terms.storage, f"{TRIALS}/{self.name}")
        take_from_others(self.scratch.path, terms, lost)
        for record in standing(RunFolder(self.scratch.path)):
            self.note(record)
        self.gauges.__enter__()

    def note(self, record: Record) -> None:
        self._round, self._diverged = record.round, record.diverged is not None
        self._best = max(self._best, record.test_accuracy or 0.0)

    def finish(self) -> None:
        """Its run is over."""
        try:
            self.__exit__(None, None, None)
            self.state = "diverged" if self._diverged else "done"
        except Exception as error:
            self.leave(error)

    def leave(self, error: BaseException) -> None:
        """It has failed."""
        logger.warning("%s failed and is run again alone (%s)", self.name, one_line(f"{type(error).__name__}: {error}"))
        self.state = "waiting"
        self.__exit__(type(error), error, error.__traceback__)

    def report(self) -> dict[str, Any]:
        return {
            TrialReport.trial: self.name,
            TrialReport.round: self._round,
            TrialReport.best_accuracy: self._best,
            TrialReport.diverged: self._diverged,
            TrialReport.state: self.state,
        }


class CohortRun(TrialRun):
    """As a trial, but `step` advances all runs of a cohort for about a second."""

    def _begin(self, config: dict[str, Any]) -> None:
        super()._begin(config)
        self._members: list[Member] = []

    def _open(self) -> FusedDriver:  # type: ignore[override]
        self._members = [Member(Experiment(**settings)) for settings in self._config[COHORT]]
        self._experiment = self._members[0].experiment
        lost = self._refuse_lost()
        for member in self._members:
            self._held.push(member.__exit__)
            try:
                member.open(self._terms, lost)
            except Exception as error:
                member.leave(error)
        self._opened = [member for member in self._members if member.state == "running"]
        if not self._opened:
            raise LostError("no trial of the cohort could be opened")
        experiments = [member.experiment for member in self._opened]
        outs = [Recording(member.scratch.path) for member in self._opened if member.scratch]
        populations = self._populations(experiments)
        device = assigned_device(self._terms.cpu_fallback)
        return self._held.enter_context(fused(experiments, populations, outs, device))

    def _populations(self, experiments: list[Experiment]) -> list[Population]:
        """Those that are equal are one."""
        reference = self._terms.samples.get(self._experiment.data_name)
        samples = ray.get(reference, timeout=FETCHED_WITHIN) if reference is not None else None
        made: dict[str, Population] = {}
        keys = [str(e.data_settings()) for e in experiments]
        for key, e in zip(keys, experiments, strict=True):
            made[key] = made.get(key) or build_population(e, samples)
        return [made[key] for key in keys]

    def _advance(self, driver: FusedDriver) -> bool:  # type: ignore[override]
        until = time.monotonic() + REPORT_EVERY
        while driver.living and time.monotonic() < until:
            for run, record in driver.step().items():
                self._opened[run].note(record)
                self._opened[run].gauges.show(record)
            self._settle(driver)
        for run, member in enumerate(self._opened):
            with driver.leaving(run):
                if member.scratch is not None:
                    member.scratch.push_if_due()
        self._settle(driver)
        return not driver.living

    def _settle(self, driver: FusedDriver) -> None:
        """Let go of the runs that are over, and of those that have failed."""
        for run, member in enumerate(self._opened):
            if member.state == "running" and run in driver.errors:
                member.leave(driver.errors[run])
            elif member.state == "running" and run in driver.results:
                member.finish()

    def step(self) -> dict[str, Any]:
        return super().step() | {COHORT: [member.report() for member in self._members]}


class CohortRelay(Relay):
    """Passes on what the trials of cohorts report; `errors` are of those that must be run again alone."""

    def _members(self, trial: Any) -> list[tuple[Experiment, str, TrialReport]]:
        if trial.trial_id not in self._cohorts:
            experiments = [Experiment(**settings) for settings in trial.config[COHORT]]
            self._cohorts[trial.trial_id] = [(e, folder_name(e)) for e in experiments]
        cohort, last = self._cohorts[trial.trial_id], trial.last_result or {}
        reports = last.get(COHORT) or [{}] * len(cohort)
        return [(*member, TrialReport(last | report)) for member, report in zip(cohort, reports, strict=True)]

    @cached_property
    def _cohorts(self) -> dict[str, list[tuple[Experiment, str]]]:
        """The trials of each of Tune's, by its id, with their names."""
        return {}

    def name(self, trial: Any) -> str:
        (_, first, _), *others = self._members(trial)
        return f"{first} and {len(others)} more"

    def _update(self, trial: Any, state: str) -> str:
        for experiment, name, report in self._members(trial):
            self._watch.update(name, experiment, report.state or state, report)
        return self.name(trial)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        super().on_trial_complete(iteration, trials, trial, **info)
        self.errors |= {name: "" for _, name, report in self._members(trial) if report.state == "waiting"}

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.trials.ended(trial)
        logger.warning("%s failed together and are run again alone (%s)", self.name(trial), reason(trial))
        for experiment, name, report in self._members(trial):
            if report.state not in ("done", "diverged"):
                self.errors[name] = reason(trial)
                self._watch.update(name, experiment, "waiting", report)


FUSED = Kind(CohortRun, CohortRelay)
