"""One round of a run again, with other nodes: what another cohort would have done to the model.

A node trains to the same bits no matter which nodes train beside it, so two cohorts of the same round differ only in
their nodes. The state before the round comes from a checkpoint of the run or, where none is old enough, from its first
rounds, which are then run again. Every round that is run again is compared with its record: a replay that does not
reproduce the run says nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedpns_ray.core.run import Run, State
from fedpns_ray.core.streams import stream
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.core.user_code import blamed_on
from fedpns_ray.data import build_population
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records import schema
from fedpns_ray.records.code import made_with
from fedpns_ray.records.lines import finite
from fedpns_ray.records.record import Record, record_of
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.reporting.sameness import first_difference, read_side
from fedpns_ray.runtime.driver import begun
from fedpns_ray.runtime.hardware import hardware
from fedpns_ray.runtime.memory import refuse_too_large

AS_DRAWN = "as drawn"
SELECTION = "selection."
"""What the keys of a selection's state begin with in a checkpoint."""


@dataclass(frozen=True)
class Cohort:
    """What a round came to with these nodes."""

    name: str
    drawn: list[int]
    excluded: list[int]
    accuracy: float | None
    """Of the round's model, between 0 and 1; None in a regression."""
    loss: float | None
    diverged: str | None = None


@dataclass(frozen=True)
class WhatIf:
    """A round with the cohort that was drawn, and with others."""

    round: int
    replayed: int
    """Rounds that were run again to get there."""
    before: Cohort | None
    """The round before, as recorded; None for round 1."""
    cohorts: list[Cohort]
    """As drawn, then those that were asked for, then random ones."""
    difference: str
    """Where the replay first departs from the record, and why; empty if it is the same to the bit."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"reproduced": not self.difference}


class Replay:
    """A round of a run, to be tried with any nodes."""

    def __init__(self, path: Path, round: int, on_round: Callable[[int, int], None] = lambda done, of: None) -> None:
        """`on_round` is called after every round that is run again on the way there, with their number."""
        side = read_side(path)
        if not 1 <= round <= len(side.records):
            raise InputError("round", round, f"it must be between 1 and {len(side.records)}, the rounds of the run")
        self.experiment, self.round = Experiment(**side.experiment.settings()), round
        refuse_too_large(self.experiment)
        self.records, self._made_with = side.records, side.made_with
        self._population = build_population(self.experiment)
        self._worker = Worker(self.experiment, self._population, "cpu")
        self._folder, self._on_round = RunFolder(path), on_round
        self.difference = ""
        """Where the replay first departs from the record; empty if it does not."""
        self.replayed = 0
        """Rounds that were run again to get there."""

    @cached_property
    def _before(self) -> State:
        """The state after the round before; found when it is first needed."""
        run = self._begun(self.experiment)
        if state := self._folder.state_before(self.round, self.experiment, run.checkpoint()):
            run.restore(state)
        first, last = run.round, self.round - 1
        while run.round < last:
            self._compare(self._next(run))
            self.replayed = run.round - first
            self._on_round(self.replayed, last - first)
        return dict(run.checkpoint())

    def _begun(self, experiment: Experiment) -> Run:
        return begun(experiment, self._population, self._worker)

    def _next(self, run: Run) -> Record:
        """The record of the run's next round."""
        with one_thread(), blamed_on(self.experiment.user_packages):
            while (work := run.ask()) is not None:
                if (round := run.tell(self._worker.answer(work))) is not None:
                    return finite(record_of(round, self.experiment.drop_probability > 0))
        raise AssertionError("the run has recorded more rounds than it has")

    def _compare(self, replayed: Record) -> None:
        recorded = self.records[replayed.round - 1]
        if recorded.test_loss is None:  # not every round is tested, but the last one of a replay is
            replayed = Record({key: value for key, value in replayed.items() if recorded.get(key) is not None})
        if not self.difference and (found := first_difference([recorded], [replayed])):
            changed = schema.changes(self._made_with, made_with(hardware("cpu")))
            why = "; ".join(f"{name} was {before}, is {now}" for name, before, now in changed)
            self.difference = f"{found}. Likely reason: {why or 'none is known'}"

    # --- cohorts ----------------------------------------------------------------------------------------------------

    def as_drawn(self) -> Cohort:
        """The round as it was; compared with its record."""
        record = self._played(self.experiment.but(rounds=self.round))
        self._compare(record)
        return _cohort(AS_DRAWN, record)

    def with_nodes(self, name: str, nodes: Sequence[int]) -> Cohort:
        """The round with these nodes instead."""
        most = self.experiment.nodes - 1
        if not nodes or len(set(nodes)) < len(nodes) or not all(0 <= node <= most for node in nodes):
            shown = ",".join(map(str, nodes))
            raise InputError("draw", shown, f"it must name distinct nodes between 0 and {most}")
        return _cohort(name, self._played(self.experiment.but(rounds=self.round), sorted(nodes)))

    def with_selection(self, selection: str) -> Cohort:
        """The round with the nodes that another selection draws, which has learned nothing from the rounds before."""
        return _cohort(selection, self._played(self.experiment.but(rounds=self.round, selection=selection)))

    def random(self, k: int) -> Cohort:
        """The k-th random cohort of the same size."""
        rng = stream(self.experiment.seed, "another cohort", self.round, k)
        size = len(self.records[self.round - 1].drawn)
        return self.with_nodes(f"random {k}", rng.choice(self.experiment.nodes, size=size, replace=False).tolist())

    def _played(self, experiment: Experiment, nodes: Sequence[int] | None = None) -> Record:
        """The record of the round, with these nodes if they are given."""
        run = self._begun(experiment)
        learned = experiment.selection == self.experiment.selection
        state = {key: np.array(value) for key, value in self._before.items()}
        run.restore({key: value for key, value in state.items() if learned or not key.startswith(SELECTION)})
        if nodes is not None:  # parts are frozen: this shadows the method of one object
            object.__setattr__(run.strategy.selection, "draw", lambda rng, probe: list(nodes))
        return self._next(run)


def _cohort(name: str, record: Record) -> Cohort:
    return Cohort(name, record.drawn, record.excluded, record.test_accuracy, record.test_loss, record.diverged)


def what_if(
    path: Path | str,
    round: int,
    draw: Sequence[int] = (),
    selection: str = "",
    random: int = 5,
    on_round: Callable[[int, int], None] = lambda done, of: None,
) -> WhatIf:
    """Replay one round of a run: as drawn, with `draw` or what `selection` draws, and with `random` other cohorts."""
    replay = Replay(Path(path), round, on_round)
    cohorts = [replay.with_nodes("asked for", draw)] if draw else []  # first, so that bad input is refused at once
    cohorts += [replay.with_selection(selection)] if selection else []
    cohorts = [replay.as_drawn(), *cohorts, *(replay.random(k) for k in range(1, random + 1))]
    before = _cohort("before", replay.records[round - 2]) if round > 1 else None
    return WhatIf(round, replay.replayed, before, cohorts, replay.difference)
