"""The dealer answers a run's work with actors: one call per actor and piece of work, merged in the order of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import NOTHING, Vector
from fedpns_ray.core.testing import TEST_CHUNK
from fedpns_ray.core.training import Worker
from fedpns_ray.core.work import Answer, Clock, Work, merged
from fedpns_ray.runtime.actor_group import ActorGroup

TEST_COST = 0.2
"""The time to test a sample, as a fraction of the time to train on one."""
BY_VALUE = 64 * 1024
"""Vectors up to this size (bytes) travel within each call; larger ones go to the object store, once per machine."""


@dataclass
class Share:
    """One actor's part of a piece of work."""

    train: list[int] = field(default_factory=list)
    test: list[int] = field(default_factory=list)
    probe: list[int] = field(default_factory=list)
    own_tests: list[int] = field(default_factory=list)
    load: float = 0.0

    def of(self, work: Work) -> Work:
        """The share as a piece of work. What all share travels separately; the centralised sequence stays here."""
        train, test, probe = tuple(self.train), tuple(self.test), tuple(self.probe)
        states = {node: work.states[node] for node in train if node in work.states}
        rest = replace(work, weights=NOTHING, shared=NOTHING, centralised=False)
        return replace(rest, train=train, test=test, probe=probe, own_tests=tuple(self.own_tests), states=states)


class Dealer:
    """Nodes live on actors; the server itself computes the centralised sequence and Check Loss."""

    def __init__(
        self, group: ActorGroup, worker: Worker, costs: NDArray[np.float64], nodes_per_actor: int | None = None
    ) -> None:
        """`costs`: samples that each node trains on per round."""
        self._group, self._worker, self._costs, self._nodes_per_actor = group, worker, costs, nodes_per_actor

    def answer(self, work: Work) -> Answer:
        clock = Clock()
        weights, shared = _carried(work.weights), _carried(work.shared)

        def call(actor: Any, share: Share) -> Any:
            """The call is not renamed: Ray remembers every name that a call was ever given."""
            return actor.answer.remote(weights, shared, share.of(work))

        whole = Share(list(work.train), list(work.test), list(work.probe), list(work.own_tests))
        shares, seconds = self._group.run(whole, self.deal, call), clock.lap()
        if work.train:  # probes are short, and would make the deadline of training too short
            self._group.deadline.observe(seconds)
        answer = merged(shares, seconds)
        if not work.centralised:
            return answer
        own = self._worker.answer(Work(work.weights, work.round, centralised=True))
        phases = {**answer.seconds, "centralised": own.seconds["centralised"]}
        return replace(answer, centralised=own.centralised, seconds=phases)

    def deal(self, whole: Share, present: Sequence[int]) -> dict[int, Share]:
        """Deal nodes to their homes, or the longest first to the least busy actor; even out the load with tests."""
        shares = {k: Share() for k in present}

        def least_busy() -> Share:
            return min(shares.values(), key=lambda share: share.load)

        for kind, cost in (("train", 1.0), ("probe", TEST_COST), ("own_tests", TEST_COST)):
            for node in sorted(getattr(whole, kind), key=lambda node: (-self._costs[node], node)):
                home = node // self._nodes_per_actor if self._nodes_per_actor else None
                share = shares[home] if home in shares else least_busy()
                getattr(share, kind).append(node)
                share.load += cost * self._costs[node]
        for chunk in whole.test:
            share = least_busy()
            share.test.append(chunk)
            share.load += TEST_CHUNK * TEST_COST
        return {k: share for k, share in shares.items() if share.load}


def _carried(vector: Vector) -> Any:
    """What every actor needs, as it travels with each call."""
    return vector if vector.nbytes <= BY_VALUE else ray.put(vector)
