"""What nodes send back, and what an aggregation makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Rows = NDArray[np.float32]
"""A matrix with one row per node."""
NOTHING: Vector = np.empty(0, dtype=np.float32)


@dataclass(frozen=True)
class Updates:
    """What the trained nodes sent back, in the order of node ids."""

    node_ids: tuple[int, ...]
    deltas: NDArray[np.float32]
    """One row per node: delta_i = w_i - w."""
    losses: NDArray[np.float64]
    """Mean loss of each node over its local steps."""
    sizes: NDArray[np.int64]
    steps: NDArray[np.int64]
    """tau_i, local steps taken."""
    lr: float
    shares: NDArray[np.float64] | None = None
    """The weight of each update in the sum, if the selection sets it; otherwise 1/m."""
    upload: NDArray[np.float64] | None = None
    """With a device model: the seconds that each update takes to send."""
    seconds: NDArray[np.float64] | None = None
    """With a device model: the seconds from the start of the round until each update has arrived."""
    states: Rows | None = None
    """What each node keeps for its next round, if the objective or the compression has it keep something."""
    buffers: int = 0
    """How many numbers at the end of each row are averaged buffers (`buffers: average`), not parameters."""
    message_bytes: NDArray[np.int64] | None = None
    """With compression: the bytes that each node sends for its update."""

    def __len__(self) -> int:
        return len(self.node_ids)

    def subset(self, positions: Sequence[int]) -> Updates:
        """The updates at these positions only."""
        at = list(positions)
        columns = ("deltas", "losses", "sizes", "steps", "shares", "upload", "seconds", "states", "message_bytes")
        there = {key: column[at] for key in columns if (column := getattr(self, key)) is not None}
        return replace(self, node_ids=tuple(self.node_ids[k] for k in at), **there)

    @property
    def of_parameters(self) -> NDArray[np.float32]:
        """The deltas without buffers: what stands in for gradients, which buffers do not have."""
        return self.deltas[:, : -self.buffers] if self.buffers else self.deltas

    def norms(self) -> NDArray[np.float64]:
        """||delta_i|| of every node, summed in float64 and without BLAS, so that threads cannot change a bit."""
        return np.sqrt(np.einsum("ik,ik->i", self.of_parameters, self.of_parameters, dtype=np.float64))


@dataclass(frozen=True)
class Outcome:
    """What an aggregation made of a round's updates."""

    weights: Vector
    aggregated: tuple[int, ...] = ()
    labelled: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    """What else belongs in the record of the round; see `Part.quantities`."""
    step: Vector | None = None
    """w_t - w_{t-1}: the global update as it was really taken, after the server optimiser; filled in by the loop."""
    probed: Mapping[int, float] = field(default_factory=dict)
    """The losses that nodes reported before this round's draw, if they were asked; filled in by the loop."""


def average(weights: Vector, deltas: NDArray[np.float32], shares: NDArray[np.float64] | None = None) -> Vector:
    """(5): w + mean of delta_i, or the sum of shares_i delta_i; in float64 in the order of the rows, without BLAS."""
    if shares is None:
        return (weights + deltas.mean(axis=0, dtype=np.float64)).astype(np.float32)
    return (weights + np.einsum("i,ik->k", shares, deltas, dtype=np.float64)).astype(np.float32)
