"""Label noise: on some nodes, some labels are wrong."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.streams import stream
from fedpns_ray.data.population import Own, Population


@dataclass(frozen=True)
class NoisyPopulation(Population):
    """A population with wrong labels on a share of its nodes; the test set stays as it is.

    Noisy nodes are drawn from a stream of their own, and so is the noise of each: it is the same whenever it is asked
    for, and whatever other nodes there are.
    """

    clean: Population
    seed: int
    share: float
    """Of the nodes."""
    noise: float
    """The share of their labels that is replaced by another label, uniformly; rounded to whole samples."""

    @cached_property
    def noisy(self) -> NDArray[np.bool_]:
        """Which nodes have wrong labels."""
        return noisy_nodes(self.seed, self.count, self.share)

    def own(self, node: int) -> Own:
        x, y = self.clean.own(node)
        return (x, self._wrong(node, y)) if self.noisy[node] else (x, y)

    def _wrong(self, node: int, labels: NDArray[Any]) -> NDArray[Any]:
        rng, found, classes = stream(self.seed, "label noise", node=node), labels.copy(), self.samples.classes
        at = rng.choice(len(labels), round(self.noise * len(labels)), replace=False)
        found[at] = (labels[at] + rng.integers(1, classes, size=len(at))) % classes
        return found

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.clean.sizes

    @property
    def described(self) -> NDArray[np.int64]:
        return self.clean.described

    @cached_property
    def histogram(self) -> NDArray[np.int64]:
        found, classes = self.clean.histogram.copy(), self.samples.classes
        for row in np.flatnonzero(self.noisy[self.described]):
            found[row] = np.bincount(self.own(int(self.described[row]))[1], minlength=classes)
        return found

    @property
    def distinct(self) -> int:
        return self.clean.distinct

    @cached_property
    def sha256(self) -> str:
        recipe = ("label noise", 1, self.clean.sha256, self.seed, self.share, self.noise)
        return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()

    def summary(self) -> dict[str, Any]:
        return super().summary() | {"noisy_nodes": int(self.noisy.sum())}


def noisy_nodes(seed: int, count: int, share: float) -> NDArray[np.bool_]:
    """Which of so many nodes have wrong labels."""
    found = np.zeros(count, dtype=bool)
    found[stream(seed, "noisy nodes").choice(count, round(share * count), replace=False)] = True
    return found


def with_label_noise(population: Population, seed: int, share: float, noise: float) -> Population:
    """The population itself if there is no noise."""
    if not share or not noise:
        return population
    return NoisyPopulation(population.samples, population.iid, population, seed, share, noise)
