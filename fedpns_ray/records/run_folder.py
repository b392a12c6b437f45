"""The record is the product: a run leaves a folder that explains itself.

config.yaml           the whole experiment
schema.json           the version of this format, and the quantities that the records hold
rounds.jsonl          one JSON object per round, appended and flushed as rounds complete
summary.json          the outcome, with the digests of weights and data
weights.safetensors   the final model
checkpoint.npz        where to resume (no pickle anywhere); checkpoint.previous.npz, the one before
events.out.tfevents…  the same curves for TensorBoard
"""

from __future__ import annotations

import errno
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.numpy

from fedpns_ray.addresses import redacted
from fedpns_ray.atomic_file import CAREFUL, NO_LINK, read_whole, refuse_irregular, write_whole
from fedpns_ray.core.interfaces import Vector
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.core.run import State
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.experiment import Experiment
from fedpns_ray.file_lock import hold
from fedpns_ray.records import schema
from fedpns_ray.records.checkpoint import ROUND, flaw, read_checkpoint, write_checkpoint
from fedpns_ray.records.code import made_with
from fedpns_ray.records.curves import Curves
from fedpns_ray.records.file_names import CHECKPOINT, CONFIG, PREVIOUS, ROUNDS, SCHEMA, SUMMARY, WEIGHTS
from fedpns_ray.records.lines import Content, Lines, read_lines, to_line, to_lines
from fedpns_ray.records.record import Record
from fedpns_ray.records.summary import Summary, damage, is_over, parse_summary, to_content
from fedpns_ray.yaml_file import MOST_BYTES, parse_yaml

LOCK_PATIENCE = 20.0
"""Seconds for a writer that was just killed to release the folder."""

GONE = "the folder is gone"
LOCK = ".lock"
"""Held by the process that writes the run."""

logger = logging.getLogger(__name__)


class RunFolder:
    """One experiment on disk: started, resumed, or finished."""

    def __init__(self, path: Path) -> None:
        _refuse_uri(path)
        self.path = path.absolute()
        self._lines: Any = None
        self._lock: Any = None
        self._curves: Curves | None = None
        self._count, self._chain = 0, ""

    # --- what is there --------------------------------------------------------------------------------------------

    @property
    def experiment(self) -> Experiment | None:
        config = self.path / CONFIG
        try:
            content = read_whole(config, MOST_BYTES)
            return None if content is None else Experiment.recorded(parse_yaml(content))
        except OSError as error:
            raise InputError("out", config, problem=f"cannot be read ({error.strerror})") from None
        except InputError as error:
            raise InputError("out", config, problem=f"does not describe an experiment ({error})") from None

    def claim(self, experiment: Experiment) -> None:
        """Refuse a folder that holds something else. Writes nothing."""
        try:
            parent = next(folder for folder in (self.path, *self.path.parents) if folder.exists())
        except OSError as error:
            raise InputError("out", self.path, problem=f"cannot be used ({error.strerror})") from None
        if not parent.is_dir():
            raise InputError("out", parent, problem="is a file", hint="name a folder")
        if not os.access(parent, os.W_OK):
            raise InputError("out", parent, problem="cannot be written to", hint="name another folder")
        there = self.experiment
        if there is None:
            if self.path == parent and any(self.path.iterdir()):
                raise InputError(
                    "out", self.path, problem="is not empty and holds no experiment", hint="name a new folder"
                )
            return
        done = min(len(self.records()), there.rounds)
        theirs, ours = there.settings(), experiment.settings()
        if theirs | {"rounds": experiment.rounds} != ours or experiment.rounds < done:
            key = next(key for key in (*ours, *theirs) if ours.get(key) != theirs.get(key))
            both = f"{key} is {theirs.get(key)!r} there, {ours.get(key)!r} here"
            raise InputError(
                "out", self.path, problem=f"holds a different experiment ({both})", hint="name a new folder"
            )

    def records(self) -> list[Record]:
        """Every whole line of rounds.jsonl, up to the first that a crash tore, or that is not as it was written."""
        return self.lines().records

    def lines(self) -> Lines:
        return read_lines(self._content(ROUNDS))

    def quantities(self, experiment: Experiment) -> tuple[Quantity, ...]:
        """What the records hold."""
        return schema.from_json(self._readable(SCHEMA), experiment)

    def made_with(self) -> dict[str, Any]:
        """Versions, code and hardware that the run was last opened with; empty if it does not say."""
        return schema.made_with_of(self._readable(SCHEMA))

    def summary(self) -> Summary | None:
        """The summary; None if the run is not over, an InputError if the file is damaged."""
        content = self._content(SUMMARY)
        if content is None:
            return None
        found = None if isinstance(content, InputError) else parse_summary(content)
        if found is None:
            raise InputError(str(self.path / SUMMARY), problem="is damaged", hint="no summary can be read from it")
        return found

    def weights(self) -> Vector:
        content = self._content(WEIGHTS)
        assert isinstance(content, bytes), "the weights are checked before they are read"
        return safetensors.numpy.load(content)["weights"]

    def state_before(self, round: int, experiment: Experiment, needed: State) -> State:
        """The latest checkpoint that was taken before a round began, if it is whole; empty if there is none.

        `needed` is what a checkpoint of this run holds before round 1. Reads only.
        """
        lines = self.lines()
        for name in (CHECKPOINT, PREVIOUS):
            state, _ = read_checkpoint(self.path / name)
            if not state or flaw(state, needed, lines, not experiment.user_packages, experiment.nodes):
                continue
            if int(state[ROUND]) < round:
                return state
        return {}

    def damage(self, lines: Lines | None = None) -> str | None:
        """How a run that is over differs from what its summary says; None if it does not, or is not over.

        `lines`: those of rounds.jsonl, where they have been read already.
        """
        summary = self.summary()
        return damage(summary, lines or self.lines(), self._content(WEIGHTS)) if summary else None

    def _content(self, name: str) -> Content:
        try:
            return read_whole(self.path / name)
        except OSError as error:
            return InputError("", Shown(name), problem=f"cannot be read ({error.strerror})")

    def _readable(self, name: str) -> bytes | None:
        """The same of a file that can be done without."""
        content = self._content(name)
        return None if isinstance(content, InputError) else content

    # --- writing ----------------------------------------------------------------------------------------------------

    def open(self, experiment: Experiment, needed: State, hardware: Mapping[str, str | None] | None = None) -> State:
        """Start, or resume: returns the last good checkpoint, empty for a run from the beginning.

        Rounds recorded after the checkpoint are repeated, to the same bits. Without a checkpoint that holds what is
        needed and stands for records that are there as they were written, the run starts over. `hardware` is what the
        run computes on.
        """
        quantities, made = schema.declared(experiment), made_with(hardware or {})
        with self._refusing():
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._refuse_folders()
            state, records = self._last_good(experiment, needed)
            done = int(state.get(ROUND, 0))
            if done:
                self._warn_of_changes(made)
            write_whole(self.path / CONFIG, experiment.to_yaml().encode())
            write_whole(self.path / SCHEMA, schema.to_json(quantities, made))
            (self.path / SUMMARY).unlink(missing_ok=True)  # written again at the end
            lines, self._chain = to_lines(records[:done])
            self._count = done
            write_whole(self.path / ROUNDS, lines)
            self._lines = (self.path / ROUNDS).open("ab")
            self._curves = Curves(self.path, quantities, done)
        return state

    def _refuse_folders(self) -> None:
        """Anything else in the place of a file is replaced; a folder may hold files that the user needs."""
        for name in (CONFIG, SCHEMA, ROUNDS, SUMMARY, WEIGHTS, CHECKPOINT, PREVIOUS):
            if (self.path / name).is_dir():
                raise OSError(errno.EISDIR, "it is a folder", str(self.path / name))

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """A folder that cannot be written to when the run begins is bad input; later it is an OSError."""
        try:
            yield
        except OSError as error:
            self.close()
            where = Path(error.filename) if error.filename else self.path
            raise InputError("out", where, problem=f"cannot be written to ({error.strerror})") from None

    def _last_good(self, experiment: Experiment, needed: State) -> tuple[State, list[Record]]:
        """The last checkpoint from which the run can resume, and the records; what is damaged is logged."""
        for path in self.path.glob(".*.partial*"):  # of a writer that was killed
            path.unlink(missing_ok=True)
        lines = self.lines()
        summary = self._content(SUMMARY)
        over = None if isinstance(summary, InputError) else parse_summary(summary)
        told = summary is not None and (over is None or is_over(over, experiment.rounds))  # by who asked for the run
        if over and not lines.damage and (wrong := damage(over, lines, None, with_weights=False)):
            lines = Lines([], [], wrong)  # which of them is wrong is unknown
        problems = [lines.damage]
        found: State = {}
        for name in (CHECKPOINT, PREVIOUS):
            state, problem = read_checkpoint(self.path / name)
            if state:
                problem = flaw(state, needed, lines, not experiment.user_packages, experiment.nodes)
            if state and not problem:
                found = state
                break
            if problem:
                problems.append(f"{name} {problem}")
                (self.path / name).unlink(missing_ok=True)
            elif name == CHECKPOINT and (self.path / PREVIOUS).exists():
                problems.append(f"{name} is missing")
        done = int(found.get(ROUND, 0))
        damaged = " and ".join(filter(None, problems))
        if damaged and not told:
            how = f"it resumes after round {done}" if done else "it starts over"
            logger.warning("%s is damaged: %s; %s, to the same bits", self.path, damaged, how)
        elif not done and lines.records and not told:
            logger.info("%s has no checkpoint yet: its %d rounds are run again", self.path, len(lines.records))
        return found, lines.records

    def _warn_of_changes(self, made: Mapping[str, str | None]) -> None:
        for change in schema.differences(self._readable(SCHEMA), made):
            logger.warning("%s is resumed: %s; the bits may differ", self.path, change)

    def break_lock(self) -> None:
        """Take the folder from a writer that is lost. If it comes back, it finds that it may no longer write."""
        (self.path / LOCK).unlink(missing_ok=True)

    def _refuse_if_taken(self) -> None:
        try:
            ours = os.path.samestat(os.fstat(self._lock.fileno()), (self.path / LOCK).stat())
        except FileNotFoundError:
            ours = False
        if not self.path.is_dir():
            raise OSError(errno.ENOENT, GONE, str(self.path))
        if not ours:
            raise self._taken()

    def _taken(self) -> InputError:
        return InputError("out", self.path, problem="is being written by another process")

    def _take_lock(self) -> None:
        """One writer per folder."""
        path = self.path / LOCK
        self._lock = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | CAREFUL | NO_LINK, 0o666), "wb")
        refuse_irregular(os.fstat(self._lock.fileno()), path)
        deadline = time.monotonic() + LOCK_PATIENCE
        while True:
            try:
                hold(self._lock)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise self._taken() from None
                time.sleep(0.1)

    def append(self, record: Record) -> None:
        line, self._chain = to_line(record, self._chain)
        self._count += 1
        with self._naming():
            self._lines.write(line)
            self._lines.flush()
        assert self._curves is not None
        self._curves.add(record)

    def checkpoint(self, state: State) -> None:
        """Write a checkpoint, after the records: it never covers more rounds than rounds.jsonl holds."""
        self._refuse_if_taken()
        with self._naming():
            os.fsync(self._lines.fileno())
            write_checkpoint(self.path, state, f"{self._count} {self._chain}")

    def finish(self, weights: Vector, summary: Summary) -> None:
        self._refuse_if_taken()
        with self._naming():
            write_whole(self.path / WEIGHTS, safetensors.numpy.save({"weights": weights}))
            write_whole(self.path / SUMMARY, to_content(summary))

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Errors of the file system name the folder, which the user knows."""
        try:
            yield
        except OSError as error:
            problem = GONE if not self.path.is_dir() else error.strerror
            raise OSError(error.errno or errno.EIO, problem, str(self.path)) from None

    def close(self) -> None:
        """Every line was flushed when it was written: a file that cannot be closed has said so before."""
        for file in (self._lines, self._curves, self._lock):
            with suppress(OSError):
                if file:
                    file.close()


def _refuse_uri(path: Path) -> None:
    """`s3://bucket/run` would become a folder named `s3:`."""
    text = str(path)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text):
        address = Shown(redacted(text.replace(":/", "://", 1)))
        hint = "a run is written to a folder; a study may be written to a bucket"
        raise InputError("out", address, problem="is not a folder", hint=hint)
