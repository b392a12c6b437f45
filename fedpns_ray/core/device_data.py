"""The samples of an experiment, on the device that trains on them.

On a GPU the training set and the test set are moved once per worker, as they are (images as uint8), and gathered there
by position. What does not fit, and what is generated or noisy, is moved when it is needed. On a CPU there is nothing to
move.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpns_ray.core.transfers import sent, to_device

if TYPE_CHECKING:
    from fedpns_ray.data import Population

MOST_RESIDENT = 2**30
"""Bytes of a training or a test set that may stay on a GPU for as long as the worker lives."""

IN_CACHE = 2**20
"""Bytes of features that are made together on a CPU: they are still in its cache when they are trained on."""


class Source(NamedTuple):
    """Features, which may not be normalised yet, and labels: arrays on a CPU, tensors on a GPU."""

    x: Any
    y: Any

    def gather(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """The samples at these places."""
        if isinstance(self.x, Tensor):
            return self.x.index_select(0, places), self.y.index_select(0, places)
        at = places.numpy()
        return torch.from_numpy(self.x.take(at, axis=0)), torch.from_numpy(self.y.take(at, axis=0))

    @classmethod
    def joined(cls, sources: Sequence[Source]) -> Source:
        """One after the other."""
        if len(sources) == 1:
            return sources[0]
        join = torch.cat if isinstance(sources[0].x, Tensor) else np.concatenate
        return cls(*(join(some) for some in zip(*sources, strict=True)))


class DeviceData:
    """What nodes hold and what models are tested on."""

    def __init__(self, population: Population, device: torch.device) -> None:
        self._population, self._samples, self._device = population, population.samples, device
        self._room = torch.empty(0)
        """For the features that are being tested: new memory for each chunk would cost as much as to fill it."""

    def share(self, other: DeviceData) -> None:
        """Use what another one keeps on the device, as far as it is the same."""
        mine, theirs = self._samples, other._samples
        if mine.train_x is theirs.train_x and mine.train_y is theirs.train_y:
            self._training = other._training
        if mine.test_x is theirs.test_x and mine.test_y is theirs.test_y:
            self._test = other._test

    def features(self, x: Tensor) -> Tensor:
        """Normalised where they are used: images stay uint8 until here."""
        return self._scaled(x.to(torch.float32)) if x.dtype == torch.uint8 else x

    def _scaled(self, x: Tensor) -> Tensor:
        return x.mul_(1 / (255 * self._samples.deviation)).sub_(self._samples.mean / self._samples.deviation)

    def moved(self, array: NDArray[Any]) -> Tensor:
        """A copy on the device."""
        return to_device(torch.tensor(array), self._device)

    # --- training ---------------------------------------------------------------------------------------------------

    def source(self, nodes: Sequence[int]) -> Source:
        """Samples among which are those of these nodes, at `places`."""
        if self._positioned(nodes[0]):
            return self._training or Source(self._samples.train_x, self._samples.train_y)
        own = [self._population.own(node) for node in nodes]
        x, y = own[0] if len(own) == 1 else (np.concatenate(some) for some in zip(*own, strict=True))
        return Source(x, y) if self._device.type == "cpu" else Source(self.moved(x), self.moved(y))

    def places(self, nodes: Sequence[int]) -> NDArray[np.int64]:
        """Where the samples of nodes of equal size are in their source: one row per node."""
        if self._positioned(nodes[0]):
            return np.stack([np.asarray(self._population.positions(node), dtype=np.int64) for node in nodes])
        size = int(self._population.sizes[nodes[0]])
        return np.arange(len(nodes) * size, dtype=np.int64).reshape(len(nodes), size)

    def _positioned(self, node: int) -> bool:
        """Whether samples are gathered from the training set itself, which is on this device."""
        here = self._device.type == "cpu" or self._training is not None
        return here and self._population.positions(node) is not None

    def together(self, samples: int) -> int:
        """Of how many steps on so many samples the features are made together: on a CPU, as many as its cache holds."""
        if self._device.type != "cpu":
            return sys.maxsize
        return max(1, IN_CACHE // (4 * samples * math.prod(self._samples.shape)))

    def of_node(self, node: int, some: NDArray[np.int64] | None = None) -> tuple[Tensor, Tensor]:
        """A node's samples, or some of them, normalised."""
        held = self._population.positions(node)
        if self._training is None or held is None:
            x, y = self._population.own(node)
            return self._normalised(x, y) if some is None else self._normalised(x[some], y[some])
        at = np.asarray(held if some is None else held[some], dtype=np.int64)
        (places,) = sent([at], self._device)
        found, labels = self._training.gather(places)
        return self.features(found), labels

    # --- testing ----------------------------------------------------------------------------------------------------

    def test_samples(self, at: slice | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Samples of the test set, normalised. On a CPU, features of a slice last until the next one is asked for."""
        if not isinstance(at, slice):
            return self._normalised(self._samples.test_x[at], self._samples.test_y[at])
        if self._test is not None:
            return self.features(self._test.x[at]), self._test.y[at]
        x, y = self._samples.test_x[at], self.moved(self._samples.test_y[at])
        if self._device.type != "cpu" or x.dtype != np.uint8:
            return self.features(self.moved(x)), y
        if self._room.shape != x.shape:
            self._room = torch.empty(x.shape)
        return self._scaled(self._room.copy_(self.moved(x))), y

    def _normalised(self, x: NDArray[Any], y: NDArray[Any]) -> tuple[Tensor, Tensor]:
        return self.features(self.moved(x)), self.moved(y)

    # --- what stays -------------------------------------------------------------------------------------------------

    @cached_property
    def _training(self) -> Source | None:
        return self._resident(self._samples.train_x, self._samples.train_y)

    @cached_property
    def _test(self) -> Source | None:
        return self._resident(self._samples.test_x, self._samples.test_y)

    def _resident(self, x: NDArray[Any], y: NDArray[Any]) -> Source | None:
        if self._device.type == "cpu" or x.nbytes + y.nbytes > MOST_RESIDENT:
            return None
        return Source(self.moved(x), self.moved(y))
