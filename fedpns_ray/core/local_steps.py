"""How much a node does in a round: steps, and the samples they use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

Counts = NDArray[np.int64]


def steps_per_epoch(experiment: Experiment, sizes: Counts) -> Counts:
    """ceil(D_i / B)."""
    return -(-sizes // experiment.batch_size)


def local_steps(experiment: Experiment, sizes: Counts, epochs: Counts | int | None = None) -> Counts:
    """tau_i = epochs ceil(D_i / B), or `max_steps` if that is less. Default: all E epochs."""
    steps = (experiment.epochs if epochs is None else epochs) * steps_per_epoch(experiment, sizes)
    return np.minimum(steps, experiment.max_steps) if experiment.max_steps else steps


def local_samples(experiment: Experiment, sizes: Counts) -> Counts:
    """Samples that a node trains on in a round: E D_i, or those of its first `max_steps` batches.

    Where these are drawn by their gradients, every sample has had a pass before.
    """
    epochs, more = np.divmod(local_steps(experiment, sizes), steps_per_epoch(experiment, sizes))
    before = sizes if experiment.build_strategy().objective.draws_samples else 0
    return before + epochs * sizes + more * experiment.batch_size
