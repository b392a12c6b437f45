"""The record is the product: a run leaves a folder that explains itself.

config.yaml           the whole experiment
rounds.jsonl          one JSON object a round, appended and flushed as it happens
summary.json          what came out, with the digests of weights and data
weights.safetensors   the final model
checkpoint.npz        where to go on (no pickle anywhere)
events.out.tfevents…  the same curves for TensorBoard
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from tensorboardX import SummaryWriter

from fedpns_ray.config import Experiment
from fedpns_ray.errors import InputError
from fedpns_ray.rounds import Progress, Record
from fedpns_ray.strategies.parts import Strategy, Vector

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
LAST = 5
"""Rounds whose mean is the final accuracy."""


class RunFolder:
    """One experiment on disk: begun, continued, or finished."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lines: Any = None
        self._events: SummaryWriter | None = None

    # --- what is there --------------------------------------------------------------------------------------------

    @property
    def experiment(self) -> Experiment | None:
        config = self.path / "config.yaml"
        return Experiment.from_yaml(config) if config.exists() else None

    def claim(self, experiment: Experiment) -> None:
        """Refuse a folder that holds something else. Writes nothing."""
        there = self.experiment
        if there is None:
            if self.path.is_dir() and any(self.path.iterdir()):
                raise InputError(f"out: {self.path} is not empty and holds no experiment; name a new folder")
            if self.path.exists() and not self.path.is_dir():
                raise InputError(f"out: {self.path} is a file; name a folder")
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
        """Every whole line of rounds.jsonl; a line torn by a crash is none."""
        path = self.path / "rounds.jsonl"
        if not path.exists():
            return []
        whole = []
        for line in path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break
            whole.append(json.loads(line))
        return whole

    def summary(self) -> dict[str, Any] | None:
        path = self.path / "summary.json"
        return json.loads(path.read_text()) if path.exists() else None

    def weights(self) -> Vector:
        return safetensors.numpy.load_file(self.path / "weights.safetensors")["weights"]

    # --- writing ----------------------------------------------------------------------------------------------------

    def open(self, experiment: Experiment, progress: Progress, strategy: Strategy) -> list[Record]:
        """Begin, or go on from the last checkpoint: fills in `progress` and the strategy's state.

        Returns the records that stand. What was recorded after the checkpoint is done again, to the same bits.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self.path / "config.yaml", experiment.to_yaml().encode())
        checkpoint = self.path / "checkpoint.npz"
        if checkpoint.exists():
            with np.load(checkpoint) as state:
                progress.weights, progress.round = state["weights"], int(state["round"])
                strategy.load_state_dict({key: state[key] for key in state.files if "." in key})
        if progress.round < experiment.rounds:
            (self.path / "summary.json").unlink(missing_ok=True)
        standing = self.records()[: progress.round]
        _write(self.path / "rounds.jsonl", b"".join(to_json(record) for record in standing))
        self._lines = (self.path / "rounds.jsonl").open("ab")
        self._events = SummaryWriter(str(self.path), purge_step=progress.round + 1, write_to_disk=True)
        return standing

    def append(self, record: Record) -> None:
        self._lines.write(to_json(record))
        self._lines.flush()
        assert self._events is not None
        for key, value in record.items():
            if isinstance(value, float):
                self._events.add_scalar(key, value, record["round"])

    def checkpoint(self, progress: Progress, strategy: Strategy) -> None:
        arrays = {"weights": progress.weights, "round": np.int64(progress.round), **strategy.state_dict()}
        partial = self.path / "checkpoint.partial.npz"
        with partial.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path / "checkpoint.npz")

    def finish(self, weights: Vector, summary: dict[str, Any]) -> None:
        partial = self.path / "weights.partial.safetensors"
        safetensors.numpy.save_file({"weights": weights}, partial)
        partial.replace(self.path / "weights.safetensors")
        _write(self.path / "summary.json", json.dumps(_plain(summary), indent=1).encode() + b"\n")

    def close(self) -> None:
        if self._lines:
            self._lines.close()
        if self._events:
            self._events.close()


def summarise(
    experiment: Experiment, records: Sequence[Record], weights: Vector, population: dict[str, Any]
) -> dict[str, Any]:
    """What came out of a run, from its records alone."""
    tested = [record for record in records if record["test_accuracy"] is not None]
    accuracy = [record["test_accuracy"] for record in tested]
    return {
        "strategy": experiment.label,
        "seed": experiment.seed,
        "rounds": len(records),
        "final_accuracy": float(np.mean(accuracy[-LAST:])),
        "last_accuracy": accuracy[-1],
        "last_loss": tested[-1]["test_loss"],
        "best_accuracy": max(accuracy),
        "rounds_to": {
            f"{target:g}": next((r["round"] for r in tested if r["test_accuracy"] >= target), None)
            for target in TARGETS
        },
        "nodes": {
            fate: _counts(records, fate, experiment.nodes) for fate in ("drawn", "labelled", "excluded", "aggregated")
        },
        "weights_sha256": sha256(weights),
        "population": population,
        "seconds": sum(record["seconds"] for record in records),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("fedpns-ray", "ray", "torch", "torchvision", "numpy")},
        },
    }


def _counts(records: Sequence[Record], fate: str, nodes: int) -> list[int]:
    times = Counter(node for record in records for node in record[fate])
    return [times[node] for node in range(nodes)]


def sha256(weights: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()


def to_json(record: Record) -> bytes:
    return json.dumps(_plain(record), allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    """JSON has no NaN: a loss that is no number is written as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _write(path: Path, content: bytes) -> None:
    """All or nothing."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)
