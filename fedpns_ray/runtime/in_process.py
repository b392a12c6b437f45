"""Everything in one process: the executor of a laptop's first minute, and the reference for all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.rounds import Metrics
from fedpns_ray.strategies.parts import Updates, Vector
from fedpns_ray.training import Worker


class InProcessExecutor:
    """One worker, asked directly."""

    def __init__(self, worker: Worker, test_size: int) -> None:
        self._worker, self.test_size = worker, test_size

    def train(self, weights: Vector, round: int, node_ids: Sequence[int]) -> Updates:
        return self._worker.train(weights, round, node_ids)

    def evaluate(self, weights: Vector) -> Callable[[], Metrics]:
        return lambda: total(self._worker.test(weights, range(self._worker.test_chunks)), self.test_size)

    def local_losses(self, weights: Vector, node_ids: Sequence[int]) -> NDArray[np.float64]:
        return self._worker.local_losses(weights, node_ids)

    def check_loss(self, weights: Vector, samples: NDArray[np.int64]) -> float:
        return self._worker.check_loss(weights, samples)


def total(chunks: NDArray[np.float64], test_size: int) -> Metrics:
    """Chunks of the test set, added up in their order."""
    correct, loss = np.add.reduce(chunks, axis=0)
    return Metrics(float(correct) / test_size, float(loss) / test_size)
