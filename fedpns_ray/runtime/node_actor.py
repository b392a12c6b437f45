"""NodeActor: hosts nodes on its share of a machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from numpy.typing import NDArray

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population
from fedpns_ray.errors import InputError
from fedpns_ray.hardware import hardware
from fedpns_ray.rounds import Clock
from fedpns_ray.strategies.parts import Updates, Vector
from fedpns_ray.training import Worker
from fedpns_ray.user_code import blamed_on


def assigned_device(cpu_fallback: bool) -> str:
    """Where torch works in this process: the GPU that Ray assigned, if it assigned one.

    A GPU that torch cannot use is refused: training would silently go on at a fraction of the speed. With `cpu_fallback`
    it is allowed, and the summary names the device.
    """
    if not ray.get_gpu_ids():
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if cpu_fallback:
        return "cpu"
    raise InputError(
        f"gpus: a share of a GPU is assigned on {socket.gethostname()}, but torch sees no CUDA there; install a CUDA "
        "build of torch and its driver, ask for no GPU (gpus_per_actor or gpus_per_trial 0), or set cpu_fallback"
    )


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

    def __init__(self, experiment: Experiment, population: Population, cpu_fallback: bool) -> None:
        torch.set_num_threads(1)
        self._experiment, self._population, self._cpu_fallback = experiment, population, cpu_fallback
        self._made: Worker | None = None

    @property
    def _worker(self) -> Worker:
        """Made by the first call: an error in an actor's constructor would reach nobody as itself."""
        if self._made is None:
            with blamed_on(self._experiment.user_packages):
                self._made = Worker(self._experiment, self._population, assigned_device(self._cpu_fallback))
        return self._made

    def describe(self) -> dict[str, Any]:
        """Where this actor is, once it is ready."""
        device = self._worker.device
        return {
            "hardware": hardware(device),
            "gpu_ids": ray.get_gpu_ids(),
            "without_cuda": bool(ray.get_gpu_ids()) and device == "cpu",
            "machine": ray.get_runtime_context().get_node_id(),
            "pid": os.getpid(),
        }

    def work(self, weights: Vector, round: int, node_ids: Sequence[int], test_chunks: Sequence[int]) -> Work:
        """This actor's part of a round: some nodes trained, some chunks of the test set, on the same weights."""
        clock = Clock()
        with blamed_on(self._experiment.user_packages):
            updates = self._worker.train(weights, round, node_ids) if node_ids else None
            train = clock.lap()
            tested = self._worker.test(weights, test_chunks)
        return Work(updates, tuple(test_chunks), tested, (train, clock.lap()))

    def local_losses(
        self, weights: Vector, round: int, node_ids: Sequence[int], samples: int | None
    ) -> dict[int, float]:
        with blamed_on(self._experiment.user_packages):
            losses = self._worker.local_losses(weights, round, node_ids, samples)
        return dict(zip(node_ids, losses.tolist(), strict=True))
