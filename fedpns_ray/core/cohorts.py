"""Cohorts: nodes that train together, step by step, as the rows of one matrix.

On a CPU only what is exact trains together by default; on a GPU whatever can, since a step of one node leaves most of
a GPU idle. There every cohort has the same number of rows, which the experiment decides and not the layout: kernels are
chosen by shape, so a cohort with fewer nodes is filled up with copies of its first one, which are thrown away.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedpns_ray.core.gpu_memory import activations, row_bytes
from fedpns_ray.core.models import CohortModel, Fit, FlatModel, Gradients, NodeDropout, refuse_unvectorisable
from fedpns_ray.errors import InputError

if TYPE_CHECKING:
    from fedpns_ray.data import Population
    from fedpns_ray.experiment import Experiment

logger = logging.getLogger(__name__)

MOST_ROWS = 16
"""Of a cohort on a GPU. With more, actors that train a few nodes each would compute mostly copies."""
ROWS_MEMORY = 2 * 10**9
"""Bytes that the rows of a cohort may take together: four actors then share a GPU with 16 GB."""
NO_PLACES = torch.empty((0, 0, 0), dtype=torch.int64)


class Group(NamedTuple):
    """Nodes that train together, with the copies that fill up their cohort."""

    nodes: list[int]
    rows: list[int]
    """Of each of the nodes among those of the worker."""
    at: Tensor
    """[epoch, node, k]: where in the source the node's k-th sample of that epoch is."""


@dataclass(frozen=True)
class Cohorts:
    """How the nodes of a worker train together."""

    model: FlatModel
    dropout: NodeDropout | None = None
    """None for a model that has its gradients in closed form."""
    size: int = 0
    """The rows of every cohort; 0 where their number does not matter."""

    def describe(self) -> str:
        return f"in cohorts of {self.size}" if self.size else "in cohorts, exactly"

    def padded(self, rows: list[int]) -> list[int]:
        return rows + rows[:1] * (self.size - len(rows))

    def begin(self, seeds: Sequence[int], sizes: Iterable[int]) -> Gradients:
        """The gradients of a new cohort, given the seed of each node's dropout and the sizes of its batches."""
        if self.dropout is not None:
            return self.model.pure_gradients(self.dropout.masks(seeds, sizes))
        assert isinstance(self.model.module, CohortModel)
        self.model.reset_buffers()
        return self.model.module.cohort_gradients


def batch_sizes(samples: int, batch_size: int, epochs: int) -> Iterator[int]:
    """Of all steps of a round."""
    whole, rest = divmod(samples, batch_size)
    return chain.from_iterable(repeat([batch_size] * whole + [rest] * (rest > 0), epochs))


def cohorts_for(experiment: Experiment, population: Population, model: FlatModel, fit: Fit) -> Cohorts | None:
    """How nodes train together; None: they train one by one."""
    on_gpu, shape = model.weights.device.type != "cpu", population.samples.shape
    if experiment.vectorize == "off":
        return None
    closed = fit.task.is_cross_entropy(fit.targets) and len(model.state) == len(model.weights)
    if closed and isinstance(model.module, CohortModel):
        found = Cohorts(model, size=cohort_size(experiment, model, fit, shape) if on_gpu else 0)
        return None if on_gpu and experiment.vectorize == "auto" and not _exact(found, fit, shape) else found
    if experiment.vectorize == "auto" and not on_gpu:
        return None
    try:
        refuse_unvectorisable(experiment.model, model, shape, fit)
    except InputError:
        if experiment.vectorize == "on":
            raise
        return None
    dropout = NodeDropout(model, lambda size: fit.inputs(size, *shape).to(model.weights.device))
    found = Cohorts(model, dropout, cohort_size(experiment, model, fit, shape))
    if experiment.vectorize == "auto" and not (
        _worthwhile(experiment, population, found) and _exact(found, fit, shape)
    ):
        return None
    return found


def cohort_size(experiment: Experiment, model: FlatModel, fit: Fit, shape: tuple[int, ...]) -> int:
    """The rows of every cohort: a function of the experiment alone."""
    row = row_bytes(model, experiment.batch_size, activations(model, fit, shape))
    return max(1, min(MOST_ROWS, experiment.trained_per_round, ROWS_MEMORY // row))


def _worthwhile(experiment: Experiment, population: Population, cohorts: Cohorts) -> bool:
    """Not where most rows would be copies (nodes of a cohort have equal size), nor where torch loops over the rows."""
    if any(isinstance(module, nn.RNNBase) for module in cohorts.model.module.modules()):
        return False
    sizes = len(np.unique(population.sizes))
    return cohorts.size > 1 and sizes * cohorts.size <= 2 * experiment.trained_per_round


@torch.no_grad()
def _exact(cohorts: Cohorts, fit: Fit, shape: tuple[int, ...]) -> bool:
    """Whether a row has the same bits wherever in the cohort it stands: tried, as no library promises it."""
    model, m = cohorts.model, cohorts.size
    generator = torch.Generator().manual_seed(0)
    x = fit.inputs(m, 2, *shape)
    if x.is_floating_point():
        x = torch.rand(x.shape, generator=generator)
    x, y = x.to(model.weights.device), fit.zeros(m, 2).to(model.weights.device)
    found = []
    for order in (range(m), range(m - 1, -1, -1)):
        at = torch.tensor(order).to(x.device)
        gradients_of = cohorts.begin(list(order), [2])
        model.module.train()
        gradients, losses = gradients_of(model.weights.repeat(m, 1), x[at], y[at])
        found.append((gradients[at], losses[at]))
    same = all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    if not same:
        logger.warning("nodes train one by one: on this GPU a node's bits would depend on its place in the cohort")
    return same
