"""Whether two runs are the same to the bit; if not, where they part, and what the likely reason is.

Records are compared round by round and field by field, in the order in which a round happens: who was drawn, what they
computed, what was made of it. Times are not compared, nor faults that were mended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpns_ray.errors import InputError, one_line
from fedpns_ray.experiment import Experiment
from fedpns_ray.records import schema
from fedpns_ray.records.file_names import CONFIG
from fedpns_ray.records.record import Record
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.summary import Summary

UNTIMED = (Record.round, Record.seconds, Record.seconds_by_phase, Record.faults, Record.chain)
"""What may differ between runs that are the same."""
FIRST = (
    Record.lr, Record.drawn, Record.returned, Record.non_finite_updates, Record.clipped, Record.train_loss,
    Record.gradient_norms, Record.labelled, Record.excluded, Record.aggregated,
)  # fmt: skip
"""Fields in the order in which a round happens; the others follow."""
NODES = (
    Record.drawn, Record.returned, Record.labelled, Record.excluded, Record.aggregated, Record.non_finite_updates,
    Record.clipped,
)  # fmt: skip
LONGEST = 60
"""Characters of a value that are shown."""


@dataclass(frozen=True)
class Sameness:
    """What was found."""

    rounds: int
    """Rounds that were compared: those that both have."""
    differences: list[str]
    """Where they part: the first round and field, or else the number of rounds or the weights. Empty: nowhere."""
    reasons: list[str]
    """What differs in how the runs were made."""

    @property
    def same(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        if self.same:
            return f"the same to the bit: {self.rounds} rounds and the weights"
        found = "; ".join(self.differences)
        why = "; ".join(self.reasons) or "none is known: settings, data, versions, code and hardware are the same"
        return f"not the same: {found}. Likely reason: {why}."


@dataclass(frozen=True)
class Side:
    """A run to be compared."""

    experiment: Experiment
    records: list[Record]
    summary: Summary | None
    made_with: Mapping[str, Any]


def sameness(one: Path | str, other: Path | str) -> Sameness:
    """Compare the runs in two folders, finished or not. Reads only."""
    mine, theirs = read_side(Path(one)), read_side(Path(other))
    rounds = min(len(mine.records), len(theirs.records))
    if not rounds:
        raise InputError(str(one if not mine.records else other), problem="has no round to compare")
    found = first_difference(mine.records, theirs.records)
    differences = [found] if found else list(_at_the_end(mine, theirs))
    return Sameness(rounds, differences, list(_reasons(mine, theirs)) if differences else [])


def read_side(path: Path) -> Side:
    """What a folder holds; an InputError if it holds no run, or a damaged one."""
    folder = RunFolder(path)
    experiment, lines = folder.experiment, folder.lines()
    if experiment is None:
        raise InputError(str(path), problem=f"holds no run (no {CONFIG})")
    if damage := folder.damage(lines) or lines.damage:
        raise InputError(str(path), problem=f"is damaged ({damage})", hint="`fedpns run` repairs it")
    return Side(experiment, lines.records, folder.summary(), folder.made_with())


def first_difference(mine: Sequence[Record], theirs: Sequence[Record]) -> str:
    """The first round and field in which these records differ; empty if there is none in the rounds that both have."""
    for one, other in zip(mine, theirs, strict=False):
        keys = [key for key in dict.fromkeys((*FIRST, *one, *other)) if key not in UNTIMED]
        for key in keys:
            if one.get(key) != other.get(key):
                return f"in round {one.round} {key} differs ({_apart(one, other, key)})"
    return ""


def _apart(one: Record, other: Record, key: str) -> str:
    """How a field differs; of a list, the first node where it does."""
    mine, theirs = one.get(key), other.get(key)
    if not isinstance(mine, list) or not isinstance(theirs, list):
        return f"{_shown(mine)} and {_shown(theirs)}"
    if key in NODES:
        node = min(set(mine) ^ set(theirs))
        return f"node {node} only in the {'first' if node in mine else 'second'}"
    if len(mine) != len(theirs):
        return f"{len(mine)} and {len(theirs)} values"
    at = next(k for k, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1])
    trained = one.returned or one.drawn
    who = f"node {trained[at]}" if len(mine) == len(trained) else f"position {at}"
    return f"{who}: {_shown(mine[at])} and {_shown(theirs[at])}"


def _shown(value: Any) -> str:
    return one_line(repr(value), longest=LONGEST)


def _at_the_end(mine: Side, theirs: Side) -> Iterator[str]:
    done = len(mine.records), len(theirs.records)
    if done[0] != done[1]:
        yield f"the first has {done[0]} rounds, the second {done[1]}; those that both have are equal"
    elif mine.summary and theirs.summary and mine.summary.weights_sha256 != theirs.summary.weights_sha256:
        yield f"all {done[0]} records are equal, but the weights are not"
    elif bool(mine.summary) != bool(theirs.summary):
        yield f"the {'second' if mine.summary else 'first'} is not finished; all {done[0]} records are equal"


def _reasons(mine: Side, theirs: Side) -> Iterator[str]:
    """What may change bits: settings first, then the data, then what the runs were made with."""
    ours, others = mine.experiment.all_settings(), theirs.experiment.all_settings()
    for key in dict.fromkeys((*ours, *others)):
        if ours.get(key) != others.get(key):
            yield f"{key} is {_shown(ours.get(key))} in the first, {_shown(others.get(key))} in the second"
    digests = [(side.summary.population or {}).get("sha256") if side.summary else None for side in (mine, theirs)]
    if all(digests) and digests[0] != digests[1]:
        yield "the populations differ"
    for name, one, other in schema.changes(mine.made_with, theirs.made_with):
        yield f"{name} is {one} in the first, {other} in the second"
