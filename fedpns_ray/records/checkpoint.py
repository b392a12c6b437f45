"""checkpoint.npz: where a run resumes. Arrays only, no pickle; the one before is kept beside it."""

from __future__ import annotations

import errno
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.atomic_file import opened, replacing
from fedpns_ray.core.node_states import damage_of
from fedpns_ray.core.run import State
from fedpns_ray.records.file_names import CHECKPOINT, PREVIOUS
from fedpns_ray.records.lines import Lines
from fedpns_ray.validation import whole_number

ROUND = "round"
"""The rounds that a checkpoint stands for."""
WEIGHTS = "weights"
RECORDS = "records"
"""The number of records that it was taken at, and their chain: `20 1f3a…`. Older checkpoints do not have it."""
NUMBERS = "biuf"
"""Kinds of arrays that hold numbers."""


class Archive(Mapping[str, NDArray[Any]]):
    """The arrays of an .npz file. Each is read, and its checksum verified, when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path, self._keys = path, tuple[str, ...]()
        with opened(path) as file:
            if file is not None:
                with np.load(file, allow_pickle=False) as arrays:
                    self._keys = tuple(arrays.files)

    def __getitem__(self, key: str) -> NDArray[Any]:
        if key not in self._keys:
            raise KeyError(key)
        with opened(self._path) as file:
            if file is None:
                raise FileNotFoundError(errno.ENOENT, "it is gone", str(self._path))
            with np.load(file, allow_pickle=False) as arrays:
                found: NDArray[Any] = arrays[key]
                return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def write_checkpoint(folder: Path, state: State, records: str) -> None:
    """It is read back before it takes the place of the last one, which is kept as the previous one."""
    last = folder / CHECKPOINT
    with replacing(last) as partial:
        with zipfile.ZipFile(partial, "w") as archive:  # one array at a time: together they may exceed the memory
            for key in state:
                _add(archive, key, state[key])
            _add(archive, RECORDS, np.array(records))
        written, _ = read_checkpoint(partial)
        if not all(key in written and _same(written[key], state[key]) for key in state):
            raise OSError(errno.EIO, "what was written is not what is read back", str(last))
        if last.is_file():
            last.replace(folder / PREVIOUS)


def _add(archive: zipfile.ZipFile, key: str, array: NDArray[Any]) -> None:
    with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    there = np.asarray(other)
    return one.dtype == there.dtype and one.shape == there.shape and one.tobytes() == there.tobytes()


def read_checkpoint(path: Path) -> tuple[State, str]:
    """What it holds, and why it holds nothing: "" if there is no such file."""
    try:
        return Archive(path), ""
    except Exception:  # a damaged archive may raise anything, from zipfile's own errors to a MemoryError
        return {}, "cannot be read"


def flaw(state: State, needed: State, lines: Lines, exact: bool, nodes: int) -> str:
    """Why a run of so many nodes cannot resume from a checkpoint; empty if it can.

    `needed` is what a checkpoint of this run holds before round 1. With `exact`, arrays must have the same shapes: the
    parts of users may keep some that grow.
    """
    try:
        return _flaw(state, needed, lines, exact) or damage_of(state, nodes)
    except Exception:  # every array is read here: whatever damaged bytes make of it
        return "cannot be read"


def _flaw(state: State, needed: State, lines: Lines, exact: bool) -> str:
    if missing := sorted(set(needed) - set(state)):
        return f"lacks {missing[0]}"
    for key, value in needed.items():
        if not _fits(state[key], np.asarray(value), exact or key == WEIGHTS):
            return f"holds another kind of {key}"
    if not np.isfinite(state[WEIGHTS]).all():
        return "holds weights that are not finite"
    done = int(state[ROUND])
    if not 0 <= done <= len(lines.records):
        return f"stands for {done} rounds, of which rounds.jsonl holds {len(lines.records)}"
    return "" if _vouched(str(state[RECORDS]) if RECORDS in state else "", lines) else "belongs to other records"


def _fits(found: NDArray[Any], before: NDArray[Any], exact: bool) -> bool:
    """A number may have become another kind of number, and text longer."""
    same_kind = found.dtype.kind == before.dtype.kind or {found.dtype.kind, before.dtype.kind} <= set(NUMBERS)
    if exact and before.ndim:
        return found.dtype == before.dtype and found.shape == before.shape
    return same_kind and found.ndim == before.ndim


def _vouched(records: str, lines: Lines) -> bool:
    count, _, chain = records.partition(" ")
    if not chain:
        return True
    number = whole_number(count) or 0
    return 0 < number <= len(lines.chains) and lines.chains[number - 1] == chain
