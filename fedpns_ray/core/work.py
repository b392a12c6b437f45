"""Work and Answer: what a run asks for, and what it is told.

An answer is a pure function of the work. So work may be repeated after a fault, split over processes and machines, or
answered together with the work of other runs, without changing a bit of the result.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import NOTHING, Updates, Vector


@dataclass(frozen=True)
class Work:
    """Everything that a run needs of one model at one moment."""

    weights: Vector
    round: int
    train: tuple[int, ...] = ()
    """Nodes to train from these weights."""
    test: tuple[int, ...] = ()
    """Chunks of the test set to test these weights on."""
    own_tests: tuple[int, ...] = ()
    """Nodes to test these weights on, each on its own data."""
    probe: tuple[int, ...] = ()
    """Nodes that report the loss of these weights on their own data."""
    probe_samples: int | None = None
    """Samples per probed node, redrawn each round; None: all of its samples."""
    states: dict[int, Vector] = field(default_factory=dict)
    """What nodes to train have kept since their last round; one without an entry has a state of zeros."""
    shared: Vector = field(default_factory=lambda: NOTHING)
    """What the server sends to every node to train beside the weights."""
    centralised: bool = False
    """Whether v_t is needed: where the centralised sequence (9) ends after a round that starts from these weights."""


@dataclass(frozen=True)
class Answer:
    """The answer to a piece of work, or to a share of one."""

    updates: Updates | None = None
    """Rows in the order of node ids; None if no node was to be trained."""
    chunks: tuple[int, ...] = ()
    tested: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 2)))
    """One row per chunk: samples classified correctly, sum of their losses."""
    losses: dict[int, float] = field(default_factory=dict)
    """Loss by node, for nodes that were probed."""
    confusion: NDArray[np.int64] | None = None
    """Labels and predictions of the chunks together, where metrics are measured (`core.metrics`)."""
    own_accuracies: dict[int, float] = field(default_factory=dict)
    """Accuracy by node, for nodes whose own data these weights were tested on."""
    centralised: Vector | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent, by phase: train, evaluate, transfer, probe, centralised."""


def merged(shares: Sequence[Answer], seconds: float) -> Answer:
    """The shares of one piece of work joined into its answer, in the order of nodes and chunks, not of arrival.

    `seconds` passed until the last share arrived; what the busiest worker does not account for was transfer.
    """
    chunks = np.concatenate([np.array(share.chunks, dtype=np.int64) for share in shares] or [np.empty(0, np.int64)])
    order = np.argsort(chunks)
    tested = np.concatenate([share.tested for share in shares] or [np.empty((0, 2))])
    matrices = [share.confusion for share in shares if share.confusion is not None]
    trained = [share.updates for share in shares if share.updates is not None]
    busiest = {
        phase: max((share.seconds.get(phase, 0.0) for share in shares), default=0.0) for phase in ("train", "evaluate")
    }
    return Answer(
        updates=_merged_updates(trained) if trained else None,
        chunks=tuple(chunks[order].tolist()),
        tested=tested[order],
        confusion=sum(matrices[1:], start=matrices[0]) if matrices else None,
        losses={node: loss for share in shares for node, loss in share.losses.items()},
        own_accuracies={node: right for share in shares for node, right in share.own_accuracies.items()},
        seconds={**busiest, "transfer": max(0.0, seconds - sum(busiest.values()))},
    )


_COLUMNS = ("deltas", "losses", "sizes", "steps", "states", "message_bytes")


def _merged_updates(parts: Sequence[Updates]) -> Updates:
    ids = [node for part in parts for node in part.node_ids]
    order = np.argsort(ids)
    keys = [key for key in _COLUMNS if getattr(parts[0], key) is not None]
    joined = {key: np.concatenate([getattr(p, key) for p in parts])[order] for key in keys}
    return Updates(node_ids=tuple(ids[k] for k in order), **joined, lr=parts[0].lr, buffers=parts[0].buffers)


class Clock:
    """A stopwatch: `lap` returns the seconds since the last lap; `within` is the time spent in `with` blocks so far."""

    def __init__(self) -> None:
        self._last = self._entered = time.perf_counter()
        self.within = 0.0

    def __enter__(self) -> None:
        self._entered = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.within += time.perf_counter() - self._entered

    def lap(self) -> float:
        before, self._last = self._last, time.perf_counter()
        return self._last - before
