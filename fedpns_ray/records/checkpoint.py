"""checkpoint.npz: where a run resumes. Arrays only, no pickle; the one before is kept beside it."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.atomic_file import read_whole, replacing
from fedpns_ray.core.run import State
from fedpns_ray.records.file_names import CHECKPOINT, PREVIOUS
from fedpns_ray.records.lines import Lines

ROUND = "round"
"""The rounds that a checkpoint stands for."""
WEIGHTS = "weights"
RECORDS = "records"
"""The number of records that it was taken at, and their chain: `20 1f3a…`. Older checkpoints do not have it."""
NUMBERS = "biuf"
"""Kinds of arrays that hold numbers."""


def write_checkpoint(folder: Path, state: State, records: str) -> None:
    """It is read back before it takes the place of the last one, which is kept as the previous one."""
    last = folder / CHECKPOINT
    with replacing(last) as partial:
        np.savez(partial, **state, **{RECORDS: np.array(records)})  # type: ignore[arg-type]
        written, _ = read_checkpoint(partial)
        if not all(key in written and _same(written[key], value) for key, value in state.items()):
            raise OSError(errno.EIO, "what was written is not what is read back", str(last))
        if last.is_file():
            last.replace(folder / PREVIOUS)


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    there = np.asarray(other)
    return one.dtype == there.dtype and one.shape == there.shape and one.tobytes() == there.tobytes()


def read_checkpoint(path: Path) -> tuple[State, str]:
    """What it holds, and why it holds nothing: "" if there is no such file."""
    try:
        content = read_whole(path)
        if content is None:
            return {}, ""
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}, ""
    except Exception:  # a damaged archive may raise anything, from zipfile's own errors to a MemoryError
        return {}, "cannot be read"


def flaw(state: State, needed: State, lines: Lines, exact: bool) -> str:
    """Why a run cannot resume from a checkpoint; empty if it can.

    `needed` is what a checkpoint of this run holds before round 1. With `exact`, arrays must have the same shapes: the
    parts of users may keep some that grow.
    """
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
    return count.isdigit() and 0 < int(count) <= len(lines.chains) and lines.chains[int(count) - 1] == chain


def without_vouching(state: State) -> State:
    return {key: value for key, value in state.items() if key != RECORDS}
