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
import hashlib
import json
import math
import os
import platform
import time
import zipfile
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from tensorboardX import SummaryWriter

from fedpns_ray import __version__
from fedpns_ray.config import Experiment
from fedpns_ray.errors import InputError
from fedpns_ray.rounds import Progress, Record
from fedpns_ray.strategies.parts import Strategy, Vector

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
LOCK_PATIENCE = 20.0
LAST = 5
"""Rounds whose mean is the final accuracy."""
LEDGER = ("bytes_up", "bytes_down", "simulated_seconds")
"""What records count and runs add up; simulated seconds only with a device model."""


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
            return Experiment.from_yaml(config) if config.exists() else None
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
        done = len(self.records())
        if there.but(rounds=experiment.rounds) != experiment or experiment.rounds < done:
            theirs, ours = there.settings(), experiment.settings()
            key = next(key for key in (*ours, *theirs) if ours.get(key) != theirs.get(key))
            raise InputError(
                f"out: {self.path} holds a different experiment ({key} is {theirs.get(key)!r} there, "
                f"{ours.get(key)!r} here); name a new folder"
            )

    def records(self) -> list[Record]:
        """Every whole line of rounds.jsonl, up to the first that a crash tore or damaged."""
        path = self.path / "rounds.jsonl"
        whole: list[Record] = []
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            try:
                record = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                record = None
            if not record or record.get("round") != len(whole) + 1:
                break
            whole.append(record)
        return whole

    def summary(self) -> dict[str, Any] | None:
        path = self.path / "summary.json"
        return json.loads(path.read_text()) if path.exists() else None

    def weights(self) -> Vector:
        return safetensors.numpy.load_file(self.path / "weights.safetensors")["weights"]

    # --- writing ----------------------------------------------------------------------------------------------------

    def open(self, experiment: Experiment, progress: Progress, strategy: Strategy) -> None:
        """Begin, or go on from the last checkpoint: fills in `progress` and the strategy's state.

        What was recorded after the checkpoint is done again, to the same bits; without a
        checkpoint that can be read, or with fewer records than it stands for, the run begins anew.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            _write(self.path / "config.yaml", experiment.to_yaml().encode())
        except OSError as error:
            raise InputError(f"out: {self.path} cannot be written to ({error.strerror})") from None
        state, records = self._read_checkpoint(), self.records()
        if state and len(records) >= int(state["round"]):
            progress.weights, progress.round = state["weights"], int(state["round"])
            strategy.load_state_dict({key: value for key, value in state.items() if "." in key})
        if progress.round < experiment.rounds:
            (self.path / "summary.json").unlink(missing_ok=True)
        standing = records[: progress.round]
        _write(self.path / "rounds.jsonl", b"".join(to_json(record) for record in standing))
        self._lines = (self.path / "rounds.jsonl").open("ab")
        self._events = SummaryWriter(str(self.path), purge_step=progress.round + 1, write_to_disk=True)

    def _read_checkpoint(self) -> dict[str, NDArray[Any]]:
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

    def checkpoint(self, progress: Progress, strategy: Strategy) -> None:
        """Records first: a checkpoint never stands for more than rounds.jsonl holds."""
        self._refuse_if_taken()
        os.fsync(self._lines.fileno())
        arrays = {"weights": progress.weights, "round": np.int64(progress.round), **strategy.state_dict()}
        partial = self.path / "checkpoint.partial.npz"
        with partial.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path / "checkpoint.npz")

    def finish(self, weights: Vector, summary: dict[str, Any]) -> None:
        self._refuse_if_taken()
        partial = self.path / "weights.partial.safetensors"
        safetensors.numpy.save_file({"weights": weights}, partial)
        partial.replace(self.path / "weights.safetensors")
        _write(self.path / "summary.json", json.dumps(summary, indent=1).encode() + b"\n")

    def close(self) -> None:
        for file in (self._lines, self._events, self._lock):
            if file:
                file.close()


def summarise(
    experiment: Experiment, records: Sequence[Record], weights: Vector, population: dict[str, Any]
) -> dict[str, Any]:
    """What came out of a run, from its records alone."""
    tested = [record for record in records if record["test_accuracy"] is not None]
    accuracy = [record["test_accuracy"] for record in tested] or [None]
    summary = {
        "strategy": experiment.label,
        "seed": experiment.seed,
        "rounds": len(records),
        "final_accuracy": float(np.mean(accuracy[-LAST:])) if tested else None,
        "last_accuracy": accuracy[-1],
        "last_loss": tested[-1]["test_loss"] if tested else None,
        "best_accuracy": max(accuracy),
        "rounds_to": {f"{target:g}": rounds_to(tested, target) for target in TARGETS},
        "nodes": {
            fate: _counts(records, fate, experiment.nodes) for fate in ("drawn", "labelled", "excluded", "aggregated")
        },
        **totals(records),
        "weights_sha256": sha256(weights),
        "population": population,
        "seconds": sum(record["seconds"] for record in records),
        "versions": {
            "python": platform.python_version(),
            "fedpns-ray": __version__,  # of this code: in a job's folder it runs without being installed
            **{name: version(name) for name in ("ray", "torch", "torchvision", "numpy")},
        },
    }
    return plain(summary)


def rounds_to(records: Sequence[Record], target: float) -> int | None:
    """The first round whose model reaches an accuracy."""
    return next((r["round"] for r in records if (r["test_accuracy"] or 0) >= target), None)


def totals(records: Sequence[Record]) -> dict[str, Any]:
    """Bytes up and down and simulated seconds of a whole run, where every record has them."""
    return {key: sum(r[key] for r in records) for key in LEDGER if records and all(key in r for r in records)}


def _counts(records: Sequence[Record], fate: str, nodes: int) -> list[int]:
    times = Counter(node for record in records for node in record[fate])
    return [times[node] for node in range(nodes)]


def sha256(weights: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()


def to_json(record: Record) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def plain(value: Any) -> Any:
    """JSON has no NaN: a loss that is no number is written as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def _write(path: Path, content: bytes) -> None:
    """All or nothing."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)
