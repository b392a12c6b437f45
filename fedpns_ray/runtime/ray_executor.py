"""The executor over Ray actors: one call an actor and round, results put in the order of node ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from fedpns_ray.hardware import Hardware
from fedpns_ray.rounds import Clock, Metrics
from fedpns_ray.runtime.actor_group import ActorGroup
from fedpns_ray.runtime.in_process import PendingTest
from fedpns_ray.runtime.node_actor import Work
from fedpns_ray.strategies.parts import Updates, Vector
from fedpns_ray.training import TEST_CHUNK, Worker

TEST_COST = 0.2
"""The time to test a sample, as a part of the time to train on one."""
BY_VALUE = 64 * 1024
"""Weights up to this size (bytes) travel within each call; larger ones lie in the object store, once a machine."""


@dataclass
class Share:
    """One actor's part of a round."""

    node_ids: list[int] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    load: float = 0.0


class RayExecutor:
    """Nodes live on actors; Check Loss is the server's own affair."""

    def __init__(
        self,
        group: ActorGroup,
        worker: Worker,
        hardware: Hardware,
        costs: NDArray[np.float64],
        nodes_per_actor: int | None = None,
    ) -> None:
        """`hardware`: what the actors train on. `costs`: samples that each node trains on in a round."""
        self._group, self._worker, self._costs, self._nodes_per_actor = group, worker, costs, nodes_per_actor
        self.test_size, self.hardware = worker.test_size, hardware
        self._pending: tuple[Vector, PendingTest] | None = None
        self.spent: dict[str, float] = {}

    # --- Executor -----------------------------------------------------------------------------------------------

    def train(self, weights: Vector, round: int, node_ids: Sequence[int]) -> Updates:
        """Training, and beside it the test of the same weights if one is pending."""
        clock = Clock()
        test = self._pending[1] if self._pending and self._pending[0] is weights else None
        self._pending = None
        chunks = range(self._worker.test_chunks) if test else range(0)
        works = self._work(weights, round, node_ids, chunks)
        if test:
            test.fill(_rows(works))
        train, evaluate = (max((work.seconds[k] for work in works), default=0.0) for k in (0, 1))
        self.spent = {"train": train, "evaluate": evaluate, "transfer": max(0.0, clock.lap() - train - evaluate)}
        trained = [work.updates for work in works if work.updates]
        return _merged(trained) if trained else self._worker.train(weights, round, ())

    def evaluate(self, weights: Vector) -> Callable[[], Metrics]:
        chunks = range(self._worker.test_chunks)
        test = PendingTest(lambda: _rows(self._work(weights, 0, (), chunks)), self.test_size)
        self._pending = weights, test
        return test.result

    def local_losses(
        self, weights: Vector, round: int, node_ids: Sequence[int], samples: int | None = None
    ) -> NDArray[np.float64]:
        sent = _sendable(weights)
        answers: dict[int, float] = {}
        for part in self._share_out(
            node_ids, (), lambda a, share: a.local_losses.remote(sent, round, share.node_ids, samples)
        ):
            answers |= part
        return np.array([answers[node] for node in node_ids])

    def centralised(self, weights: Vector, round: int) -> Vector:
        return self._worker.centralised(weights, round)

    def check_loss(self, weights: Vector, samples: NDArray[np.int64]) -> float:
        return self._worker.check_loss(weights, samples)

    # --- sharing out --------------------------------------------------------------------------------------------

    def _work(self, weights: Vector, round: int, node_ids: Sequence[int], chunks: Sequence[int]) -> list[Work]:
        """Calls keep Ray's name for them, NodeActor.work: Ray remembers every name that a call was ever given."""
        sent = _sendable(weights)
        return self._share_out(
            node_ids, chunks, lambda a, share: a.work.remote(sent, round, share.node_ids, share.chunks)
        )

    def _share_out(
        self, node_ids: Sequence[int], chunks: Sequence[int], call: Callable[[Any, Share], Any]
    ) -> list[Any]:
        return self._group.run(
            lambda present: self._deal(node_ids, chunks, present),
            call,
            lambda lost, present: self._deal(lost.node_ids, lost.chunks, present),
        )

    def _deal(self, node_ids: Sequence[int], chunks: Sequence[int], present: Sequence[int]) -> dict[int, Share]:
        """Nodes to their homes, or the longest first to the actor with the least to do; then chunks to even it out."""
        shares = {k: Share() for k in present}

        def least_busy() -> Share:
            return min(shares.values(), key=lambda share: share.load)

        for node in sorted(node_ids, key=lambda node: (-self._costs[node], node)):
            home = node // self._nodes_per_actor if self._nodes_per_actor else None
            share = shares[home] if home in shares else least_busy()
            share.node_ids.append(node)
            share.load += self._costs[node]
        for chunk in chunks:
            share = least_busy()
            share.chunks.append(chunk)
            share.load += TEST_CHUNK * TEST_COST
        return {k: share for k, share in shares.items() if share.load}


def _sendable(weights: Vector) -> Any:
    return weights if weights.nbytes <= BY_VALUE else ray.put(weights)


def _merged(parts: list[Updates]) -> Updates:
    """All updates in the order of node ids, whoever came first."""
    ids = [node for part in parts for node in part.node_ids]
    order = np.argsort(ids)
    joined = {
        key: np.concatenate([getattr(p, key) for p in parts])[order] for key in ("deltas", "losses", "sizes", "steps")
    }
    return Updates(node_ids=tuple(ids[k] for k in order), **joined, lr=parts[0].lr)


def _rows(works: list[Work]) -> NDArray[np.float64]:
    """Tested chunks in the order of the test set."""
    chunks = np.concatenate([np.array(work.chunks, dtype=np.int64) for work in works])
    return np.concatenate([work.tested for work in works])[np.argsort(chunks)]
