"""NodeActor: hosts nodes on its share of a machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from numpy.typing import NDArray

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population
from fedpns_ray.rounds import Clock
from fedpns_ray.strategies.parts import Updates, Vector
from fedpns_ray.training import Worker


def assigned_device() -> str:
    """Where torch should work in this process: the GPU that Ray assigned, if torch can use it."""
    return "cuda" if ray.get_gpu_ids() and torch.cuda.is_available() else "cpu"


class Work(NamedTuple):
    """What an actor gives back for its part of a round."""

    updates: Updates | None
    chunks: tuple[int, ...]
    """Of the test set."""
    tested: NDArray[np.float64]
    """A row for each of them."""
    seconds: tuple[float, float]
    """Spent on training and on testing."""


@ray.remote
class NodeActor:
    """One worker in a process of its own, with one torch thread and the device that Ray assigned.

    It keeps nothing between calls, so it may die, be restarted elsewhere, and be asked again.
    """

    def __init__(self, experiment: Experiment, population: Population) -> None:
        torch.set_num_threads(1)
        self._device = assigned_device()
        self._worker = Worker(experiment, population, self._device)

    def describe(self) -> dict[str, Any]:
        """Where this actor is, once it is ready."""
        return {
            "device": self._device,
            "gpu_ids": ray.get_gpu_ids(),
            "without_cuda": bool(ray.get_gpu_ids()) and self._device == "cpu",
            "machine": ray.get_runtime_context().get_node_id(),
            "pid": os.getpid(),
        }

    def work(self, weights: Vector, round: int, node_ids: Sequence[int], test_chunks: Sequence[int]) -> Work:
        """This actor's part of a round: some nodes trained, some chunks of the test set, on the same weights."""
        clock = Clock()
        updates = self._worker.train(weights, round, node_ids) if node_ids else None
        train = clock.lap()
        tested = self._worker.test(weights, test_chunks)
        return Work(updates, tuple(test_chunks), tested, (train, clock.lap()))

    def local_losses(
        self, weights: Vector, round: int, node_ids: Sequence[int], samples: int | None
    ) -> dict[int, float]:
        losses = self._worker.local_losses(weights, round, node_ids, samples)
        return dict(zip(node_ids, losses.tolist(), strict=True))
