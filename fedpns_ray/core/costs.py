"""What a round costs: bytes up and down and, with a device model, simulated seconds.

What is counted: whole models, 4 bytes per parameter, or with compression the messages as they are; vectors of that
length which an objective sends along with them; and the numbers that nodes report so that the server can choose (a
loss, a norm). What a server knows about channels is not counted, and neither are the few numbers that come with an
update (its loss, its steps).
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
    losses_asked: int = 0
    """Losses that nodes were asked for before the draw."""


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
        along: int = 0,
    ) -> None:
        """`payload`: bytes of a model. `losses`: the answers of nodes so far, by (node ids, samples).

        `along`: bytes that travel with the model to each drawn node, and back with its update.
        """
        self._e, self._nodes, self._round, self._payload, self._losses = experiment, nodes, round, payload, losses
        self._along = along
        self._probed: set[int] = set()
        self._answers = 0
        self._probing = 0.0

    def __call__(self, node_ids: Sequence[int], samples: int | None = None) -> NDArray[np.float64]:
        asked = np.array(node_ids, dtype=np.int64)
        answering = self.reaches(asked)
        ids = asked[answering].tolist()
        if not ids:  # nobody is asked, or nobody is there to answer
            return np.full(len(asked), np.nan)
        if (tuple(ids), samples) not in self._losses:
            raise Unanswered(tuple(ids), samples)
        self._probed |= set(ids)
        self._answers += len(ids)
        if self._nodes.devices:
            sizes = self._nodes.sizes[ids]
            used = sizes if samples is None else np.minimum(samples, sizes)
            self._probing += PROBE_COST * float((used / self._nodes.devices.speed[ids]).max())
        answers = np.full(len(asked), np.nan)
        answers[answering] = self._losses[tuple(ids), samples]
        return answers

    @property
    def probed(self) -> dict[int, float]:
        """The losses that were asked for, by node; the last answer of a node that was asked more than once."""
        answers = (zip(ids, found.tolist(), strict=True) for (ids, _), found in self._losses.items())
        return {node: loss for answer in answers for node, loss in answer}

    @cached_property
    def available(self) -> NDArray[np.int64]:
        """The nodes that can be drawn and asked this round."""
        if self._nodes.timetable is None:
            return np.arange(self._nodes.count)
        return np.flatnonzero(self.next_available() == self._round)

    def reaches(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these nodes can be drawn and asked this round."""
        always = self._nodes.timetable is None
        return np.ones(len(nodes), dtype=bool) if always else np.isin(nodes, self.available)

    def next_available(self) -> NDArray[np.int64]:
        timetable = self._nodes.timetable
        return np.full(self._nodes.count, self._round) if timetable is None else timetable.next_rounds(self._round)

    def resources(self) -> Resources:
        return self._resources

    @cached_property
    def _resources(self) -> Resources:
        return self._nodes.needed_devices("this selection").resources(self._round)

    def timed(self, updates: Updates) -> Updates:
        """The updates with the time that each took, if there is a device model."""
        if self._nodes.devices is None:
            return updates
        upload = self._upload(updates)
        return replace(updates, upload=upload, seconds=self._probing + self._train(updates) + upload)

    def _upload(self, updates: Updates) -> NDArray[np.float64]:
        """The time to send each update; a message may be shorter or longer than was expected."""
        assert self._nodes.devices is not None
        upload = self._resources.upload[list(updates.node_ids)]
        if updates.message_bytes is None:
            return upload
        return upload * ((updates.message_bytes + self._along) / self._nodes.devices.payload)

    def _train(self, updates: Updates) -> NDArray[np.float64]:
        """The training time of each node; one that trains for fewer than E epochs finishes sooner."""
        whole = local_steps(self._e, updates.sizes)
        return self._resources.train[list(updates.node_ids)] * (updates.steps / whole)

    def costs(self, selection: Selection, drawn: Sequence[int], updates: Updates, sent: Sequence[int]) -> Costs:
        """The costs of the round. Of the nodes drawn, those in `updates` returned from training; `sent` sent theirs."""
        models = selection.downloads * len(drawn) + len(self._probed - set(drawn))
        numbers = self._answers + selection.reports * len(updates)
        up = self._messages(updates, sent) + self._along * len(sent) + NUMBER * numbers
        down = self._payload * models + self._along * len(drawn)
        if self._nodes.devices is None:
            return Costs(up, down, losses_asked=self._answers)
        return Costs(up, down, self._probing + self._duration(selection, updates, sent), self._answers)

    def _messages(self, updates: Updates, sent: Sequence[int]) -> int:
        """Bytes of the updates that were sent."""
        if updates.message_bytes is None:
            return self._payload * len(sent)
        return int(updates.message_bytes[np.isin(updates.node_ids, sent)].sum())

    def _duration(self, selection: Selection, updates: Updates, sent: Sequence[int]) -> float:
        """Seconds until the last update arrives. Where the server chooses by reports, uploads wait for all reports."""
        if not len(updates):
            return 0.0
        train, upload = self._train(updates), self._upload(updates)
        upload = np.where(np.isin(updates.node_ids, sent), upload, 0.0)
        return float(train.max() + upload.max() if selection.reports else (train + upload).max())
