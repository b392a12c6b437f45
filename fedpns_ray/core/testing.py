"""Tester: what a model is worth, on the test set and on the data of nodes; with one thread, on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpns_ray.core.determinism import settle
from fedpns_ray.core.device_data import DeviceData
from fedpns_ray.core.interfaces import Vector
from fedpns_ray.core.metrics import Confusion, confusion_of
from fedpns_ray.core.models import Fit, flat_model_for, for_testing, memory_layout
from fedpns_ray.core.streams import stream
from fedpns_ray.core.transfers import Later, Readout, T, in_blocks

if TYPE_CHECKING:
    from fedpns_ray.data import Population
    from fedpns_ray.experiment import Experiment

TEST_CHUNK = 500
"""Test samples evaluated together. Fixed, so that sums do not depend on how chunks are spread over workers."""

MOST_OUTPUTS = 2**22
"""Bytes of outputs that are counted together; at least those of one part."""


def place_of(chunk: int) -> slice:
    """Where a chunk is in the test set."""
    return slice(chunk * TEST_CHUNK, (chunk + 1) * TEST_CHUNK)


class Tester:
    """Tests models of one experiment."""

    def __init__(self, experiment: Experiment, population: Population, device: str = "cpu") -> None:
        self._e, self._population, self._device = experiment, population, torch.device(device)
        settle(self._device, experiment.fast_math)
        self._fit = Fit.to(population.samples, experiment)
        self._data = DeviceData(population, self._device)
        self._sent: dict[int, tuple[Vector, Tensor]] | None = None
        """What has been moved for the piece of work that is being answered, if one is."""
        self.model = flat_model_for(experiment, population.samples, self._device)
        self.initial_weights: Vector = np.array(self.model.state.cpu().numpy())
        """w before round 1."""

    @property
    def device(self) -> str:
        """cpu or cuda."""
        return self._device.type

    # --- the test set -----------------------------------------------------------------------------------------------

    @property
    def test_size(self) -> int:
        return len(self._population.samples.test_y)

    @property
    def test_chunks(self) -> int:
        return -(-self.test_size // TEST_CHUNK)

    def test(self, weights: Vector, chunks: Sequence[int], confusion: Confusion | None = None) -> NDArray[np.float64]:
        """One row per chunk of the test set: samples classified correctly, sum of their losses.

        What is predicted is added to `confusion`.
        """
        return self._now(lambda out: self._tested(weights, chunks, confusion, out))

    def _tested(
        self, weights: Vector, chunks: Sequence[int], confusion: Confusion | None, out: Readout
    ) -> Later[NDArray[np.float64]]:
        places = [place_of(chunk) for chunk in chunks]
        predicted: list[NDArray[np.int64]] | None = None if confusion is None else []
        rows = self._measured(weights, (self._data.test_samples(at) for at in places), out, predicted)

        def counted() -> NDArray[np.float64]:
            for at, found in zip(places, predicted or (), strict=confusion is not None):
                assert confusion is not None
                confusion.__iadd__(confusion_of(self._population.samples.test_y[at], found, len(confusion)))
            return rows()

        return counted

    def check_loss(self, weights: Vector, samples: NDArray[np.int64]) -> float:
        """The mean loss on some test samples (Check Loss)."""
        parts = [self._data.test_samples(samples)]
        return float(self._now(lambda out: self._measured(weights, parts, out))[0, 1]) / len(samples)

    # --- the data of nodes ------------------------------------------------------------------------------------------

    def local_losses(
        self, weights: Vector, round: int, node_ids: Sequence[int], samples: int | None = None
    ) -> NDArray[np.float64]:
        """F_i(w) of nodes on their own data, or an estimate from `samples` of it, redrawn each round."""
        some = [self._probed(round, node, samples) for node in node_ids]
        parts = (self._data.of_node(node, at) for node, at in zip(node_ids, some, strict=True))
        rows = self._now(lambda out: self._measured(weights, parts, out))
        sizes = [
            int(self._population.sizes[node]) if at is None else len(at)
            for node, at in zip(node_ids, some, strict=True)
        ]
        return rows[:, 1] / np.array(sizes, dtype=np.float64)

    def _probed(self, round: int, node: int, samples: int | None) -> NDArray[np.int64] | None:
        """Which of a node's samples are looked at; None: all."""
        size = int(self._population.sizes[node])
        if samples is None or samples >= size:
            return None
        return stream(self._e.seed, "probe", round, node).choice(size, samples, replace=False)

    def own_accuracies(self, weights: Vector, node_ids: Sequence[int]) -> NDArray[np.float64]:
        """The accuracy of a model on the data of each of these nodes."""
        sizes = [int(self._population.sizes[node]) for node in node_ids]
        counts = [-(-size // TEST_CHUNK) for size in sizes]
        rows = self._now(lambda out: self._measured(weights, self._pieces(node_ids), out))
        each = np.split(rows[:, 0], np.cumsum(counts)[:-1]) if counts else []
        return np.array([sum(right.tolist()) / size for right, size in zip(each, sizes, strict=True)])

    def _pieces(self, node_ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        for node in node_ids:
            x, y = self._data.of_node(node)
            pieces = x.split(TEST_CHUNK)
            yield from zip([x] if len(pieces) == 1 else map(Tensor.clone, pieces), y.split(TEST_CHUNK), strict=True)

    # --- tensors ----------------------------------------------------------------------------------------------------

    def _now(self, launch: Callable[[Readout], Later[T]]) -> T:
        """What is launched, read at once."""
        out = Readout(self._device)
        later = launch(out)
        out.read()
        return later()

    def _load_for_testing(self, weights: Vector) -> None:
        self.model.load(self._tensor(weights))
        for_testing(self.model.module, self._e.buffers)

    @torch.no_grad()
    def _measured(
        self,
        weights: Vector,
        parts: Iterable[tuple[Tensor, Tensor]],
        out: Readout,
        predicted: list[NDArray[np.int64]] | None = None,
    ) -> Later[NDArray[np.float64]]:
        """One row per part: samples predicted correctly, sum of their losses. Predictions go into `predicted`."""
        rows: list[NDArray[np.float64]] = []
        for block in in_blocks(self._outputs(weights, parts), lambda part: part[0].nbytes, MOST_OUTPUTS):
            outputs, targets = zip(*block, strict=True)
            rows.append(np.empty((len(block), 2)))
            out.add(self._fit.task.tested_each(outputs, targets), rows[-1])
            if predicted is not None:
                for one in outputs:
                    predicted.append(np.empty(tuple(one.shape[:-1]), dtype=np.int64))
                    out.add(one.argmax(-1), predicted[-1])
        return lambda: np.concatenate([*rows, np.empty((0, 2))])

    def _outputs(self, weights: Vector, parts: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """What a model says of each part, and what is right."""
        for k, (x, y) in enumerate(parts):
            if not k:
                self._load_for_testing(weights)
            self.model.reset_buffers()
            yield self.model.module(memory_layout(self.model.module, x)), y

    def _tensor(self, weights: Vector) -> Tensor:
        """On the device; while a piece of work is answered, its weights are moved once."""
        if self._sent is None or self._device.type == "cpu":
            return self._data.moved(weights)
        if id(weights) not in self._sent:
            self._sent[id(weights)] = weights, self._data.moved(weights)
        return self._sent[id(weights)][1]
