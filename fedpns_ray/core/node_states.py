"""What nodes keep from one of their rounds to the next: one vector per node, in memory or, past a limit, on disk.

A node that has never kept anything has a state of zeros, which costs nothing. States are part of the checkpoint, in
pieces of bounded size, so that they may be larger than the memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.compression import Compression
from fedpns_ray.core.interfaces import Objective, Rows, Updates, Vector
from fedpns_ray.core.user_code import refused
from fedpns_ray.validation import whole_number

MOST_IN_MEMORY = 2**30
"""Bytes of states that are held in memory; further ones go to a temporary file."""
PIECE = 2**26
"""Bytes of states that a checkpoint holds in one array, at most (but at least one state)."""
NODES, STATES = "state_nodes", "states_"
"""Keys of a checkpoint: the nodes that have a state, and the pieces of their states, numbered."""


class NodeStates(Mapping[str, NDArray[Any]]):
    """The states of all nodes. As a mapping: the arrays of a checkpoint, each made when it is asked for."""

    def __init__(self, length: int, most_in_memory: int = MOST_IN_MEMORY, piece: int = PIECE) -> None:
        """`length`: the numbers of a state."""
        self._length = length
        self._most = most_in_memory // max(1, 4 * length)
        self._piece = max(1, piece // max(1, 4 * length))
        self._place: dict[int, int] = {}
        self._held: list[Vector] = []
        self._file: IO[bytes] | None = None

    @property
    def nodes(self) -> list[int]:
        """The nodes that have a state, in the order in which they got one."""
        return list(self._place)

    def of(self, nodes: Sequence[int]) -> dict[int, Vector]:
        """The states of those of these nodes that have one."""
        return {node: self._read(self._place[node]) for node in nodes if node in self._place}

    def keep(self, nodes: Sequence[int], states: Rows) -> None:
        """Each node's state from now on."""
        for node, state in zip(nodes, states, strict=True):
            self._write(self._place.setdefault(int(node), len(self._place)), state)

    def _read(self, place: int) -> Vector:
        if place < self._most:
            return self._held[place]
        assert self._file is not None
        size = 4 * self._length
        return np.frombuffer(os.pread(self._file.fileno(), size, (place - self._most) * size), dtype=np.float32)

    def _write(self, place: int, state: Vector) -> None:
        if place < self._most:
            self._held[place : place + 1] = [np.array(state, dtype=np.float32)]
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="fedpns-states-", buffering=0)  # noqa: SIM115 - as long as the run
        content = memoryview(np.ascontiguousarray(state, dtype=np.float32).tobytes())
        at = (place - self._most) * len(content)
        while content:  # a write may be partial
            done = os.pwrite(self._file.fileno(), content, at)
            content, at = content[done:], at + done

    # --- the checkpoint ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return 1 + -(-len(self._place) // self._piece) if self._place else 0

    def __iter__(self) -> Iterator[str]:
        if self._place:
            yield NODES
            yield from (f"{STATES}{k}" for k in range(len(self) - 1))

    def __getitem__(self, key: str) -> NDArray[Any]:
        if key == NODES and self._place:
            return np.array(self.nodes, dtype=np.int64)
        number = whole_number(key.removeprefix(STATES)) if key.startswith(STATES) else None
        if number is None or number >= len(self) - 1:
            raise KeyError(key)
        first = number * self._piece
        return np.stack([self._read(k) for k in range(first, min(first + self._piece, len(self._place)))])

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take the states of a checkpoint."""
        nodes, done = arrays.get(NODES, np.empty(0, dtype=np.int64)).tolist(), 0
        for rows in pieces(arrays):
            self.keep(nodes[done : done + len(rows)], rows)
            done += len(rows)


def pieces(arrays: Mapping[str, NDArray[Any]]) -> Iterator[Rows]:
    """The pieces of states that a checkpoint holds, in their order, one at a time."""
    number = 0
    while (key := f"{STATES}{number}") in arrays:
        yield arrays[key]
        number += 1


def damage_of(arrays: Mapping[str, NDArray[Any]], nodes: int) -> str:
    """Why the states of a checkpoint of so many nodes cannot be used; empty if they can. There need not be any."""
    ids = arrays.get(NODES, np.empty(0, dtype=np.int64))
    if ids.dtype.kind != "i" or ids.ndim != 1 or len(set(ids.tolist())) != len(ids):
        return "holds the states of impossible nodes"
    if len(ids) and not 0 <= ids.min() <= ids.max() < nodes:
        return "holds the states of nodes that do not exist"
    found, lengths = 0, set[int]()
    for rows in pieces(arrays):
        if rows.dtype != np.float32 or rows.ndim != 2 or not np.isfinite(rows).all():
            return "holds states of another kind"
        found, lengths = found + len(rows), lengths | {rows.shape[1]}
    if len(lengths) > 1:
        return "holds states of several lengths"
    return "" if found == len(ids) else f"holds {found} states of {len(ids)} nodes"


# --- where nodes train ------------------------------------------------------------------------------------------------


def states_of(nodes: Sequence[int], states: Mapping[int, Vector], length: int) -> Rows:
    """A row per node; zeros for a node that has kept nothing yet."""
    rows = np.zeros((len(nodes), length), dtype=np.float32)
    for row, node in zip(rows, nodes, strict=True):
        if node in states:
            row[:] = states[node]
    return rows


def vectors_kept(objective: Objective, compression: Compression) -> int:
    """The vectors, as long as the parameters, that a node's state consists of: the objective's, then the others."""
    return int(objective.keeps_states) + compression.keeps


def next_states(objective: Objective, states: Rows, shared: Vector, updates: Updates) -> Rows:
    """What the objective has each node keep for its next round."""
    if not objective.keeps_states:
        return states
    with np.errstate(over="ignore", invalid="ignore"):  # an update that is not finite is left out, and named
        found = objective.next_states(states, shared, updates)
    return shaped(objective.next_states, found, states)


def shaped(method: Callable[..., Any], found: Any, states: Rows) -> Rows:
    """What a method of an objective returned; refused unless it is a row per node, as long as the parameters."""
    rows = np.asarray(found)
    if rows.shape != states.shape or rows.dtype.kind != "f":
        problem = f"it returned an array of {rows.dtype} of shape {rows.shape}; it must be float32 of {states.shape}"
        raise refused(method, problem)
    return rows.astype(np.float32, copy=False)
