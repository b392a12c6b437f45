"""The ledger of a round: bytes up and down and, with a device model, simulated seconds.

Counted are whole models, 4 bytes a parameter, and the numbers that nodes report so that the server can choose (a loss,
a norm). What rides along with an update, and what a server knows of channels, is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.devices import PROBE_COST, Resources
from fedpns_ray.core.interfaces import Nodes, Selection, Updates

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

NUMBER = 8
"""Bytes of a reported number."""


class Unanswered(BaseException):
    """A probe that nobody has answered yet. No error: it ends a draw, and no part of the user's own should catch it."""

    def __init__(self, node_ids: tuple[int, ...], samples: int | None) -> None:
        super().__init__(node_ids, samples)
        self.node_ids, self.samples = node_ids, samples


class Ledger:
    """One round's. It is also the `Probe` that a selection asks, so that nothing is asked for free."""

    def __init__(
        self,
        experiment: Experiment,
        nodes: Nodes,
        round: int,
        payload: int,
        losses: Mapping[tuple[tuple[int, ...], int | None], NDArray[np.float64]],
    ) -> None:
        """`payload`: bytes of a model. `losses`: what nodes have answered so far, by (node ids, samples)."""
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
        """A node that does fewer epochs than E is done sooner."""
        whole = self._e.epochs * -(-updates.sizes // self._e.batch_size)
        return self._resources.train[list(updates.node_ids)] * (updates.steps / whole)

    def entries(
        self, selection: Selection, drawn: Sequence[int], updates: Updates, sent: Sequence[int]
    ) -> dict[str, Any]:
        """For the record: of the nodes drawn, `updates` are back from training, and `sent` sent theirs."""
        down = selection.downloads * len(drawn) + len(self._probed - set(drawn))
        numbers = self._answers + selection.reports * len(updates)
        traffic = {"bytes_up": self._payload * len(sent) + NUMBER * numbers, "bytes_down": self._payload * down}
        if self._nodes.devices is None:
            return traffic
        return {**traffic, "simulated_seconds": self._probing + self._duration(selection, updates, sent)}

    def _duration(self, selection: Selection, updates: Updates, sent: Sequence[int]) -> float:
        """Until the last node is heard. Where the server chooses by reports, uploads begin when all of those are in."""
        if not len(updates):
            return 0.0
        train, upload = self._train(updates), self._resources.upload[list(updates.node_ids)]
        upload = np.where(np.isin(updates.node_ids, sent), upload, 0.0)
        return float(train.max() + upload.max() if selection.reports else (train + upload).max())
