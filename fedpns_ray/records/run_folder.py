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
from collections.abc import Collection, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from tensorboardX import SummaryWriter

from fedpns_ray import __version__
from fedpns_ray.core.interfaces import Vector
from fedpns_ray.core.run import Record, State
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.yaml_file import read_yaml

if TYPE_CHECKING:
    from fedpns_ray.runtime.hardware import Hardware

Summary = dict[str, Any]

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


def summarise(
    experiment: Experiment,
    records: Sequence[Record],
    weights: Vector,
    population: dict[str, Any],
    hardware: Hardware,
) -> Summary:
    """What came out of a run, from its records alone. A run that diverged has no final accuracy."""
    tested = [record for record in records if record["test_accuracy"] is not None]
    accuracy = [record["test_accuracy"] for record in tested] or [None]
    diverged = bool(records) and "diverged" in records[-1]
    final = tested[-LAST:] if not diverged else []
    summary = {
        "strategy": experiment.label,
        "seed": experiment.seed,
        "rounds": len(records),
        "diverged": {"round": records[-1]["round"], "reason": records[-1]["diverged"]} if diverged else None,
        "final_accuracy": float(np.mean([record["test_accuracy"] for record in final])) if final else None,
        "last_accuracy": accuracy[-1],
        "last_loss": tested[-1]["test_loss"] if tested else None,
        "best_accuracy": max(accuracy),
        "rounds_to": {f"{target:g}": rounds_to(tested, target) for target in TARGETS},
        "nodes": {
            fate: _counts(records, fate, experiment.nodes) for fate in ("drawn", "labelled", "excluded", "aggregated")
        },
        "non_finite_updates": sum(len(record.get("non_finite_updates", ())) for record in records),
        **totals(records),
        "weights_sha256": sha256(weights),
        "records_sha256": hashlib.sha256(b"".join(map(to_json, records))).hexdigest(),
        "population": population,
        "seconds": sum(record["seconds"] for record in records),
        **hardware,
        "versions": {
            "python": platform.python_version(),
            "fedpns-ray": __version__,  # of this code: in a job's folder it runs without being installed
            **{name: version(name) for name in ("ray", "torch", "torchvision", "numpy")},
        },
    }
    return plain(summary)


# --- reading ---------------------------------------------------------------------------------------------------------


def whole_records(content: bytes) -> list[Record]:
    """The records of rounds.jsonl, up to the first line that is torn, damaged or out of order."""
    whole: list[Record] = []
    for line in content.splitlines(keepends=True):
        try:
            record = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            record = None
        if not isinstance(record, dict) or record.get("round") != len(whole) + 1:
            break
        whole.append(record)
    return whole


def parse_summary(content: bytes | None) -> Summary | None:
    """A summary from its file's content; None if there is none, or only half of one."""
    try:
        found = json.loads(content or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("rounds"), int) else None


def is_over(summary: Summary | None, rounds: int) -> bool:
    """Whether a run with this summary has come to its end: all its rounds, or divergence."""
    return summary is not None and (summary["rounds"] == rounds or diverged_in(summary) is not None)


def diverged_in(summary: Summary) -> int | None:
    """The round in which a run diverged; None if it did not."""
    return int(summary["diverged"]["round"]) if summary.get("diverged") else None


def damage(summary: Summary, lines: bytes | None, weights: bytes | None, with_weights: bool = True) -> str | None:
    """What of a finished run's files is not as its summary says, in words; None if all is.

    Runs recorded before summaries held the digest of rounds.jsonl are checked by the number of its records.
    """
    expected, there = summary["rounds"], len(whole_records(lines or b""))
    if lines is None or there != expected:
        return f"rounds.jsonl holds {there} of {expected} rounds"
    digest = summary.get("records_sha256")
    if digest and hashlib.sha256(lines).hexdigest() != digest:
        return "rounds.jsonl does not have the SHA-256 that summary.json gives"
    if not with_weights:
        return None
    if weights is None:
        return "weights.safetensors is missing"
    try:
        found = sha256(safetensors.numpy.load(weights)["weights"])
    except (safetensors.SafetensorError, KeyError, ValueError):
        return "weights.safetensors cannot be read"
    if found != summary.get("weights_sha256"):
        return "weights.safetensors does not have the SHA-256 that summary.json gives"
    return None


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


def finite(record: Record) -> Record:
    """JSON has no NaN: a number that is not finite is written as null, and the record names it."""
    lost = [key for key, value in record.items() if isinstance(value, float) and not math.isfinite(value)]
    return plain(record) | ({"non_finite": lost} if lost else {})


def plain(value: Any) -> Any:
    """Numbers that are not finite as null."""
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
