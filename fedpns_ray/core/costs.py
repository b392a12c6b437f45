"""What a round costs: bytes up and down and, with a device model, simulated seconds.

What is counted: whole models, 4 bytes per parameter, and the numbers that nodes report so that the server can choose
(a loss, a norm). What travels along with an update, and what a server knows about channels, is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.devices import PROBE_COST, Resources
from fedpns_ray.core.interfaces import Nodes, Selection, Updates
from fedpns_ray.core.local_steps import local_steps

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

NUMBER = 8
"""Bytes per reported number."""


@dataclass(frozen=True)
class Costs:
    """The costs of one round."""

    bytes_up: int
    bytes_down: int
    simulated_seconds: float | None = None
    """None without a device model."""


class Unanswered(BaseException):
    """A probe without an answer yet. Not an error: it ends a draw, and user-defined parts should not catch it."""

    def __init__(self, node_ids: tuple[int, ...], samples: int | None) -> None:
        super().__init__(node_ids, samples)
        self.node_ids, self.samples = node_ids, samples


class Ledger:
    """The costs of one round. It is also the `Probe` that a selection asks, so that nothing is asked for free."""

    def __init__(
        self,
        experiment: Experiment,
        nodes: Nodes,
        round: int,
        payload: int,
        losses: Mapping[tuple[tuple[int, ...], int | None], NDArray[np.float64]],
    ) -> None:
        """`payload`: bytes of a model. `losses`: the answers of nodes so far, by (node ids, samples)."""
        self._e, self._nodes, self._round, self._payload, self._losses = experiment, nodes, round, payload, losses
        self._probed: set[int] = set()
        self._answers = 0
        self._probing = 0.0

    def __call__(self, node_ids: Sequence[int], samples: int | None = None) -> NDArray[np.float64]:
        ids = [int(node) for node in node_ids]
        if (tuple(ids), samples) not in self._losses:
            raise Unanswered(tuple(ids), samples)
        self._probed |= set(ids)
        self._answers += len(ids)
        if self._nodes.devices and ids:
            sizes = self._nodes.sizes[ids]
            used = sizes if samples is None else np.minimum(samples, sizes)
            self._probing += PROBE_COST * float((used / self._nodes.devices.speed[ids]).max())
        return self._losses[tuple(ids), samples].copy()

    def resources(self) -> Resources:
        return self._resources

    @cached_property
    def _resources(self) -> Resources:
        return self._nodes.needed_devices("this selection").resources(self._round)

    def timed(self, updates: Updates) -> Updates:
        """The updates with the time that each took, if there is a device model."""
        if self._nodes.devices is None:
            return updates
        upload = self._resources.upload[list(updates.node_ids)]
        return replace(updates, upload=upload, seconds=self._probing + self._train(updates) + upload)

    def _train(self, updates: Updates) -> NDArray[np.float64]:
        """The training time of each node; one that trains for fewer than E epochs finishes sooner."""
        whole = local_steps(self._e, updates.sizes)
        return self._resources.train[list(updates.node_ids)] * (updates.steps / whole)

    def costs(self, selection: Selection, drawn: Sequence[int], updates: Updates, sent: Sequence[int]) -> Costs:
        """The costs of the round. Of the nodes drawn, those in `updates` returned from training; `sent` sent theirs."""
        down = selection.downloads * len(drawn) + len(self._probed - set(drawn))
        numbers = self._answers + selection.reports * len(updates)
        up, down = self._payload * len(sent) + NUMBER * numbers, self._payload * down
        if self._nodes.devices is None:
            return Costs(up, down)
        return Costs(up, down, self._probing + self._duration(selection, updates, sent))

    def _duration(self, selection: Selection, updates: Updates, sent: Sequence[int]) -> float:
        """Seconds until the last update arrives. Where the server chooses by reports, uploads wait for all reports."""
        if not len(updates):
            return 0.0
        train, upload = self._train(updates), self._resources.upload[list(updates.node_ids)]
        upload = np.where(np.isin(updates.node_ids, sent), upload, 0.0)
        return float(train.max() + upload.max() if selection.reports else (train + upload).max())
