"""The record is the product: a run leaves a folder that explains itself.

config.yaml           the whole experiment
rounds.jsonl          one JSON object a round, appended and flushed as it happens
summary.json          what came out, with the digests of weights and data
weights.safetensors   the final model
checkpoint.npz        where to go on (no pickle anywhere)
events.out.tfevents…  the same curves for TensorBoard
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from tensorboardX import SummaryWriter

from fedpns_ray.core.interfaces import Vector
from fedpns_ray.core.run import Record, State
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.lines import to_json, whole_records
from fedpns_ray.records.summary import Summary, damage, parse_summary
from fedpns_ray.yaml_file import read_yaml

LOCK_PATIENCE = 20.0


class RunFolder:
    """One experiment on disk: begun, continued, or finished."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lines: Any = None
        self._lock: Any = None
        self._events: SummaryWriter | None = None

    # --- what is there --------------------------------------------------------------------------------------------

    @property
    def experiment(self) -> Experiment | None:
        config = self.path / "config.yaml"
        try:
            return Experiment.recorded(read_yaml(config)) if config.exists() else None
        except InputError as error:
            raise InputError(f"out: {config} is not an experiment's ({error})") from None

    def claim(self, experiment: Experiment) -> None:
        """Refuse a folder that holds something else. Writes nothing."""
        parent = next(folder for folder in (self.path, *self.path.parents) if folder.exists())
        if not parent.is_dir():
            raise InputError(f"out: {parent} is a file; name a folder")
        if not os.access(parent, os.W_OK):
            raise InputError(f"out: {parent} cannot be written to; name another folder")
        there = self.experiment
        if there is None:
            if self.path == parent and any(self.path.iterdir()):
                raise InputError(f"out: {self.path} is not empty and holds no experiment; name a new folder")
            return
        done = min(len(self.records()), there.rounds)
        theirs, ours = there.settings(), experiment.settings()
        if theirs | {"rounds": experiment.rounds} != ours or experiment.rounds < done:
            key = next(key for key in (*ours, *theirs) if ours.get(key) != theirs.get(key))
            raise InputError(
                f"out: {self.path} holds a different experiment ({key} is {theirs.get(key)!r} there, "
                f"{ours.get(key)!r} here); name a new folder"
            )

    def records(self) -> list[Record]:
        """Every whole line of rounds.jsonl, up to the first that a crash tore or damaged."""
        return whole_records(self._content("rounds.jsonl") or b"")

    def summary(self) -> Summary | None:
        """None if the run is not over; an InputError if the file is damaged."""
        content = self._content("summary.json")
        if content is None:
            return None
        found = parse_summary(content)
        if found is None:
            raise InputError(f"{self.path / 'summary.json'}: is damaged; no summary can be read from it")
        return found

    def weights(self) -> Vector:
        return safetensors.numpy.load_file(self.path / "weights.safetensors")["weights"]

    def damage(self, with_weights: bool = True) -> str | None:
        """What of a run that is over is not as its summary says; None if nothing is, or the run is not over."""
        summary = self.summary()
        if summary is None:
            return None
        weights = self._content("weights.safetensors") if with_weights else None
        return damage(summary, self._content("rounds.jsonl"), weights, with_weights)

    def _content(self, name: str) -> bytes | None:
        path = self.path / name
        return path.read_bytes() if path.exists() else None

    # --- writing ----------------------------------------------------------------------------------------------------

    def open(self, experiment: Experiment, needed: Collection[str]) -> State:
        """Begin, or resume: gives back the last checkpoint, empty for a run from the start.

        What was recorded after the checkpoint is done again, to the same bits; without a checkpoint that can be read and
        holds what is needed, or with fewer records than it stands for, the run starts over.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            _write(self.path / "config.yaml", experiment.to_yaml().encode())
        except OSError as error:
            raise InputError(f"out: {self.path} cannot be written to ({error.strerror})") from None
        state, records = self._read_checkpoint(), self.records()
        if not set(needed) <= set(state) or len(records) < int(state["round"]) or self._records_damaged():
            state = {}
        done = int(state.get("round", 0))
        (self.path / "summary.json").unlink(missing_ok=True)  # written again at the end
        _write(self.path / "rounds.jsonl", b"".join(to_json(record) for record in records[:done]))
        self._lines = (self.path / "rounds.jsonl").open("ab")
        self._events = SummaryWriter(str(self.path), purge_step=done + 1, write_to_disk=True)
        return state

    def _records_damaged(self) -> bool:
        """Of a run that was over: its checkpoint stands for records that are not there any more."""
        try:
            return self.damage(with_weights=False) is not None
        except InputError:  # half a summary says nothing; what the checkpoint stands for is counted
            return False

    def _read_checkpoint(self) -> State:
        try:
            with np.load(self.path / "checkpoint.npz") as state:
                return {key: state[key] for key in state.files}
        except (OSError, EOFError, ValueError, zipfile.BadZipFile):
            return {}

    def break_lock(self) -> None:
        """Take the folder from a writer that is lost. Should it come back, it finds that it may not write any more."""
        (self.path / ".lock").unlink(missing_ok=True)

    def _refuse_if_taken(self) -> None:
        try:
            ours = os.path.samestat(os.fstat(self._lock.fileno()), (self.path / ".lock").stat())
        except FileNotFoundError:
            ours = False
        if not ours:
            raise InputError(f"out: {self.path} is being written by another process")

    def _take_lock(self) -> None:
        """One writer a folder. A process that was just killed may need a moment to let go."""
        self._lock = (self.path / ".lock").open("w")
        deadline = time.monotonic() + LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InputError(f"out: {self.path} is being written by another process") from None
                time.sleep(0.1)

    def append(self, record: Record) -> None:
        self._lines.write(to_json(record))
        self._lines.flush()
        assert self._events is not None
        for key, value in record.items():
            if isinstance(value, float):
                self._events.add_scalar(key, value, record["round"])

    def checkpoint(self, state: State) -> None:
        """Records first: a checkpoint never stands for more than rounds.jsonl holds."""
        self._refuse_if_taken()
        os.fsync(self._lines.fileno())
        partial = self.path / "checkpoint.partial.npz"
        with partial.open("wb") as file:
            np.savez(file, **state)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path / "checkpoint.npz")

    def finish(self, weights: Vector, summary: Summary) -> None:
        self._refuse_if_taken()
        partial = self.path / "weights.partial.safetensors"
        safetensors.numpy.save_file({"weights": weights}, partial)
        partial.replace(self.path / "weights.safetensors")
        _write(self.path / "summary.json", json.dumps(summary, indent=1).encode() + b"\n")

    def close(self) -> None:
        for file in (self._lines, self._events, self._lock):
            if file:
                file.close()


def _write(path: Path, content: bytes) -> None:
    """All or nothing."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)
