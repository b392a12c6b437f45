"""One trial: an experiment on its share of a machine, as Ray Tune's Trainable.

It works in its own run folder in the study's storage and resumes from what is there: a trial that was lost, stopped or
left unfinished by an earlier command continues from its last checkpoint, wherever it is started again.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.util.placement_group import get_current_placement_group

from fedpns_ray.atomic_file import read_whole, write_whole
from fedpns_ray.data import build_population
from fedpns_ray.errors import InputError, LostError
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import folder_name
from fedpns_ray.records.claims import refuse_taken
from fedpns_ray.records.file_names import TRIALS
from fedpns_ray.records.record import Key, Record
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.storage import Storage
from fedpns_ray.runtime.actor_group import FETCHED_WITHIN
from fedpns_ray.runtime.deadlines import PATIENCE
from fedpns_ray.runtime.driver import Driver, Recording
from fedpns_ray.runtime.gauges import Gauges
from fedpns_ray.runtime.in_process import in_process
from fedpns_ray.runtime.layout import Plan
from fedpns_ray.runtime.news import Newsroom
from fedpns_ray.runtime.node_actor import assigned_device
from fedpns_ray.runtime.node_actors import Place, on_node_actors
from fedpns_ray.study.scratch import Scratch

REPORT_EVERY = 1.0
"""Seconds between two reports of a trial: each costs a few milliseconds, in the trial and in Tune's loop."""

COHORT = "cohort"
"""In Tune's configuration of fused trials: the settings of each; in its reports: the report of each."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Terms:
    """What all trials of a study share."""

    storage: Storage
    samples: dict[str, Any]
    """Data set → reference to its samples in the object store, once per machine."""
    plan: Plan | None = None
    """Node actors to spread over; None: the trial is one process."""
    cpu_fallback: bool = False
    """Whether a trial may train on the CPU if it is given a GPU that torch cannot use."""
    patience: float = PATIENCE
    """Seconds that a trial's worker may be silent, at least, before it is killed."""
    owner: str = ""
    """The claim on the study's storage under which its trials write; empty: none is checked."""
    taken_from: str = ""
    """The claim of a former owner that is gone without having ended, if there is one."""
    target: float | None = None
    """Only used by searches: report every round, and stop at this accuracy."""


class TrialReport(dict[str, Any]):
    """What a trial last reported to Tune; empty before its first report."""

    trial = Key[str]()
    round = Key["int | None"]()
    best_accuracy = Key["float | None"]()
    cost = Key[float]()
    """What a search minimises."""
    diverged = Key["bool | None"]()
    state = Key["str | None"]()
    """Of a fused trial: running, done, diverged, or waiting to be run alone."""
    messages = Key["list[tuple[int, str]] | None"]()
    """Log messages since the last report: level and text."""


def experiment_of(config: dict[str, Any]) -> Experiment:
    """The experiment of a trial, from its configuration in Tune; suggested values come in steps, so round them.

    Of fused trials, the first one's.
    """
    if COHORT in config:
        return Experiment(**config[COHORT][0])
    suggested = {key: round(value, 6) for key, value in config.items() if key != "experiment"}
    return Experiment(**config["experiment"] | suggested)


class TrialRun(tune.Trainable):
    """`step` advances the run for about a second; the process and its imports serve one trial after another."""

    def setup(self, config: dict[str, Any], terms: Terms) -> None:
        torch.set_num_threads(1)
        self._terms = terms
        self._newsroom = Newsroom().__enter__()
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._end()
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        self._end()
        self._newsroom.__exit__(None, None, None)

    def _begin(self, config: dict[str, Any]) -> None:
        """Opens and imports nothing yet: Tune starts workers that never get a step, and another one may run the trial.

        What hangs here is not noticed: Tune tells nobody about a worker that is starting.
        """
        self._newsroom.since(0)  # drop what the previous trial logged at its end
        self._config = config
        self._driver: Driver | None = None
        self._held = ExitStack()
        self._scratch: Scratch | None = None
        self._gauges: Gauges | None = None
        self._round, self._best = 0, 0.0
        self._reached: int | None = None
        self._diverged = False

    def _open(self) -> Driver:
        """The trial's run, resumed from its folder."""
        self._experiment = experiment_of(self._config)
        lost = self._refuse_lost()
        self._scratch = Scratch(self._terms.storage, f"{TRIALS}/{folder_name(self._experiment)}")
        out = self._scratch.path
        take_from_others(out, self._terms, lost)
        for record in standing(RunFolder(out)):
            self._note(record)
        self._gauges = self._held.enter_context(Gauges(folder_name(self._experiment)))
        return self._held.enter_context(self._start(out))

    def _refuse_lost(self) -> set[str]:
        """An error if this machine was cut off, or the study has another owner. Returns the machines that are lost."""
        lost = _lost_machines()
        if ray.get_runtime_context().get_node_id() in lost:
            raise LostError("this machine was cut off, and its trials run elsewhere")
        if self._terms.owner:
            refuse_taken(self._terms.storage, self._terms.owner)
        return lost

    def _start(self, out: Path) -> Driver:
        e, plan, recording = self._experiment, self._terms.plan, Recording(out)
        reference = self._terms.samples.get(e.data_name)
        population = build_population(e, ray.get(reference, timeout=FETCHED_WITHIN) if reference is not None else None)
        if plan is None:
            return in_process(e, population, recording, assigned_device(self._terms.cpu_fallback))
        place = Place(plan, get_current_placement_group(), f"{folder_name(e)} ({os.getpid()}-{next(_numbers)})")
        return self._held.enter_context(on_node_actors(e, ray.put(population), place, recording))

    def step(self) -> dict[str, Any]:
        try:
            self._driver = self._driver or self._open()
            done = self._advance(self._driver)
        except BaseException:
            self._driver = None
            self._held.__exit__(*sys.exc_info())  # no checkpoint for a round that failed midway
            if self._scratch:
                self._scratch.discard()
            raise
        if done:
            self._end()
        elif self._scratch:
            self._scratch.push_if_due()
        return {
            TrialReport.trial: folder_name(self._experiment),
            TrialReport.round: self._round,
            TrialReport.best_accuracy: self._best,
            TrialReport.cost: self._cost(),
            TrialReport.diverged: self._diverged,
            TrialReport.messages: [tuple(message) for message in self._newsroom.since(0).messages],
            "done": done,  # for Tune
        }

    def _advance(self, driver: Driver) -> bool:
        """Advance for about a second; returns whether the trial is over."""
        until = time.monotonic() + (0 if self._terms.target else REPORT_EVERY)
        while not self._reached:
            record = driver.step()
            if record is None:
                driver.finish()
                return True
            self._note(record)
            if self._gauges:
                self._gauges.show(record)
            if time.monotonic() >= until:
                return False
        return True

    def _note(self, record: Record) -> None:
        self._round, self._diverged = record.round, record.diverged is not None
        self._best = max(self._best, record.test_accuracy or 0.0)
        if self._terms.target and self._best >= self._terms.target:
            self._reached = self._reached or self._round

    def _cost(self) -> float:
        """What a search minimises: rounds to the target; if it is missed, all rounds plus the remaining gap."""
        if self._reached:
            return float(self._reached)
        return self._experiment.rounds * (1 + (self._terms.target or 1.0) - self._best)

    def _end(self) -> None:
        """Leave the run folder complete: finished, or with a checkpoint of the last round."""
        if self._driver is None:
            return
        self._driver = None
        self._held.close()
        if self._scratch:
            self._scratch.close()


def standing(folder: RunFolder) -> list[Record]:
    """The records that a trial resumes from; those of a damaged run are computed again."""
    lines = folder.lines()
    try:
        return [] if folder.damage(lines) else lines.records
    except InputError:
        return []


def _lost_machines() -> set[str]:
    return {node["NodeID"] for node in ray.nodes() if not node["Alive"]}


def take_from_others(out: Path, terms: Terms, lost: set[str]) -> None:
    """Break the lock of a machine that was cut off, or of a study's former owner that is gone.

    Both may keep running for minutes and hold their locks, while the trial resumes here.
    """
    holder = out / ".machine"
    machine, _, theirs = (read_whole(holder) or b"").decode(errors="replace").partition(" ")
    if machine in lost or (theirs and theirs == terms.taken_from):
        RunFolder(out).break_lock()
    out.mkdir(parents=True, exist_ok=True)
    write_whole(holder, f"{ray.get_runtime_context().get_node_id()} {terms.owner}".encode())
