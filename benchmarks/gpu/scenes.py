"""The models that the GPU path is counted and checked with, each on random images, so that no data set is needed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedpns_ray import Experiment
from fedpns_ray.data.interfaces import Samples
from fedpns_ray.data.population import HeldPopulation, from_lists


class Scene(NamedTuple):
    """A model, and what its nodes hold."""

    model: str
    dataset: str
    """Whose settings are taken; its samples are not."""
    shape: tuple[int, ...]
    nodes: int = 10
    samples: int = 200
    test_samples: int = 1_000
    max_steps: int = 10

    def experiment(self, **more: object) -> Experiment:
        """One epoch of batches of 20, as in the paper; all nodes train in every round."""
        small = {"nodes": self.nodes, "fraction": 1.0, "samples_per_node": self.samples, "max_steps": self.max_steps}
        settings = {"dataset": self.dataset, "model": self.model, "strategy": "fedavg", "epochs": 1, **small}
        return Experiment(**{**settings, **more})

    def population(self) -> HeldPopulation:
        rng = np.random.default_rng(0)

        def images(count: int) -> tuple[np.ndarray, np.ndarray]:
            labels = rng.integers(0, 10, count)
            noise = rng.integers(0, 160, (count, *self.shape), dtype=np.uint8)
            return noise + (9 * labels).astype(np.uint8).reshape(-1, *(1 for _ in self.shape)), labels

        train, test = images(self.nodes * self.samples), images(self.test_samples)
        held = np.arange(self.nodes * self.samples).reshape(self.nodes, self.samples)
        samples = Samples(*train, *test, mean=0.5, deviation=0.25)
        return from_lists(samples, list(held), np.ones(self.nodes, dtype=bool))


SCENES = {
    "mlr": Scene("mlr", "mnist", (1, 28, 28)),
    "cnn-m": Scene("cnn-m", "mnist", (1, 28, 28)),
    "cnn-c": Scene("cnn-c", "cifar10", (3, 32, 32)),
    "resnet18-gn": Scene("resnet18-gn", "cifar10", (3, 8, 8), nodes=2, samples=20, test_samples=500, max_steps=1),
}
"""The images of ResNet-18-GN are smaller here than CIFAR's, which changes no count."""
