"""What a worker needs of a GPU's memory, computed from shapes before anything is trained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedpns_ray.core.device_data import MOST_RESIDENT
from fedpns_ray.core.models import Fit, FlatModel, own_randomness
from fedpns_ray.core.transfers import MOST_INDEXED, MOST_WAITING

if TYPE_CHECKING:
    from fedpns_ray.data import Population
    from fedpns_ray.experiment import Experiment

CONTEXT = 600 * 10**6
"""Bytes of a process on a GPU before it has any tensor: CUDA's context, the kernels of cuBLAS and cuDNN."""
ROW_COPIES = 6
"""Vectors as long as the model that a row needs: weights, gradient, two of an optimiser, a state, one for the step."""
TRAINED_COPIES = 3
"""Bytes of memory per byte of activations in a step: kept for the gradient, their gradients, workspace."""
TESTED_COPIES = 4
"""Of the largest activation of a test: inputs, outputs and workspace of one layer."""


class Activations(NamedTuple):
    """Bytes per sample."""

    all: int
    largest: int


class GpuNeeds(NamedTuple):
    """Bytes."""

    context: int
    data: int
    """Training and test set, and positions."""
    rows: int
    """Weights, gradients and activations of the nodes that train together, or of a test."""
    updates: int
    """Of a round, as they wait to be read."""

    @property
    def total(self) -> int:
        return sum(self)


class _Counting(TorchDispatchMode):
    """Sums up what operators return; views cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not any(returned.alias_info for returned in func._schema.returns):
            self.sizes += [leaf.nbytes for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
        return found


@torch.no_grad()
def activations(model: FlatModel, fit: Fit, shape: tuple[int, ...]) -> Activations:
    """What a pass over two samples computes, per sample."""
    x = fit.inputs(2, *shape).to(model.weights.device)
    with own_randomness(model.weights.device), (counting := _Counting()):
        model.module.train()(x)
    model.reset_buffers()
    sizes = [*counting.sizes, x.nbytes]
    return Activations(sum(sizes) // 2, max(sizes) // 2)


def row_bytes(model: FlatModel, batch_size: int, each: Activations) -> int:
    """What a node needs while it trains."""
    return ROW_COPIES * model.state.nbytes + TRAINED_COPIES * batch_size * each.all


def models_tested(model: FlatModel, fit: Fit, shape: tuple[int, ...], test_chunk: int, most: int) -> int:
    """How many models may be tested together on a chunk, so that this takes at most so many bytes; at least one."""
    return max(1, most // (TESTED_COPIES * test_chunk * activations(model, fit, shape).largest))


def gpu_needs(experiment: Experiment, population: Population, model: FlatModel, rows: int, test_chunk: int) -> GpuNeeds:
    """What a worker needs that trains `rows` nodes together."""
    e, s, fit = experiment, population.samples, Fit.to(population.samples, experiment)
    each = activations(model, fit, s.shape)
    sets = [x.nbytes + y.nbytes for x, y in ((s.train_x, s.train_y), (s.test_x, s.test_y))]
    sample = 4 * math.prod(s.shape) + s.train_x.itemsize * math.prod(s.shape) + 8
    epoch = int(population.sizes.max()) * sample  # gathered in one go
    training = rows * (row_bytes(model, e.batch_size, each) + epoch)
    testing = TESTED_COPIES * test_chunk * each.largest
    updates = min(2 * MOST_WAITING, 2 * e.trained_per_round * model.state.nbytes)
    resident = sum(size for size in sets if size <= MOST_RESIDENT)
    positions = min(MOST_INDEXED, 8 * e.epochs * e.trained_per_round * int(population.sizes.max()))
    return GpuNeeds(CONTEXT, resident + positions, max(training, testing) + 2 * model.state.nbytes, updates)
