"""Everything in one process: the executor of a laptop's first minute, and the reference for all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population
from fedpns_ray.hardware import Hardware, hardware
from fedpns_ray.rounds import Clock, Metrics
from fedpns_ray.runtime.server import Serving, serve
from fedpns_ray.strategies.parts import Updates, Vector
from fedpns_ray.training import Worker


def serve_in_process(
    experiment: Experiment, population: Population, out: Path | None, checkpoint_every: int, device: str = "cpu"
) -> Serving:
    """An experiment with all its nodes in this process, on one device."""
    worker = Worker(experiment, population, device)
    executor = InProcessExecutor(worker, hardware(device))
    return serve(experiment, population, executor, worker.initial_weights, out, checkpoint_every)


class InProcessExecutor:
    """One worker, asked directly."""

    def __init__(self, worker: Worker, hardware: Hardware) -> None:
        self._worker, self.test_size, self.hardware = worker, worker.test_size, hardware
        self._test: PendingTest | None = None
        self.spent: dict[str, float] = {}

    def train(self, weights: Vector, round: int, node_ids: Sequence[int]) -> Updates:
        clock = Clock()
        updates = self._worker.train(weights, round, node_ids)
        train = clock.lap()
        if self._test:
            self._test.run()
        self.spent = {"train": train, "evaluate": clock.lap(), "transfer": 0.0}
        return updates

    def evaluate(self, weights: Vector) -> Callable[[], Metrics]:
        self._test = PendingTest(lambda: self._worker.test(weights, range(self._worker.test_chunks)), self.test_size)
        return self._test.result

    def local_losses(
        self, weights: Vector, round: int, node_ids: Sequence[int], samples: int | None = None
    ) -> NDArray[np.float64]:
        return self._worker.local_losses(weights, round, node_ids, samples)

    def centralised(self, weights: Vector, round: int) -> Vector:
        return self._worker.centralised(weights, round)

    def check_loss(self, weights: Vector, samples: NDArray[np.int64]) -> float:
        return self._worker.check_loss(weights, samples)


class PendingTest:
    """A test of a model that runs once: beside the next training, or when its result is asked for."""

    def __init__(self, chunks: Callable[[], NDArray[np.float64]], test_size: int) -> None:
        self._chunks, self._test_size = chunks, test_size
        self._rows: NDArray[np.float64] | None = None

    def run(self) -> None:
        if self._rows is None:
            self.fill(self._chunks())

    def fill(self, rows: NDArray[np.float64]) -> None:
        """One row a chunk of the test set, in their order."""
        self._rows = rows

    def result(self) -> Metrics:
        self.run()
        assert self._rows is not None
        correct, loss = np.add.reduce(self._rows, axis=0)
        return Metrics(float(correct) / self._test_size, float(loss) / self._test_size)
