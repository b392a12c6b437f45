"""Whether a model and a strategy can work with a population: checked before anything starts."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpns_ray.core.interfaces import Nodes
from fedpns_ray.core.metrics.metric import MOST_CLASSES, TEST_SET
from fedpns_ray.core.run import known_nodes
from fedpns_ray.core.user_code import blamed_on, refused
from fedpns_ray.data.interfaces import MOST_HELD
from fedpns_ray.data.population import GeneratedPopulation, Population
from fedpns_ray.errors import InputError, Shown, one_line

if TYPE_CHECKING:
    from torch import nn

    from fedpns_ray.core.models import Fit
    from fedpns_ray.experiment import Experiment


def check_fits(experiment: Experiment, population: Population) -> None:
    """Raise an InputError if the model or the strategy cannot work with this population."""
    from fedpns_ray.core.models import (
        CohortModel,
        Fit,
        FlatModel,
        last_layer,
        model_for,
        numbers_sent,
        parameter_shapes,
        refuse_unvectorisable,
    )

    if experiment.centralised and isinstance(getattr(population, "clean", population), GeneratedPopulation):
        allowed = f"it passes over all samples, which are held for at most {MOST_HELD} nodes of generated data"
        raise InputError("centralised", Shown("true"), allowed)
    samples = population.samples
    module = model_for(experiment, samples)
    fit = Fit.to(samples, experiment)
    tensors = parameter_shapes(module)
    buffers = numbers_sent(module, experiment.buffers) - sum(map(math.prod, tensors))
    closed = fit.task.is_cross_entropy(fit.targets) and isinstance(module, CohortModel)
    if experiment.vectorize == "on" and not closed:
        refuse_unvectorisable(experiment.model, FlatModel(module, loss=fit.task.loss), samples.shape, fit)
    _refuse_unmeasurable(experiment, population)
    _refuse_single_samples(experiment, population, module, fit)
    _refuse_stepless(experiment, sum(map(math.prod, tensors)))
    with blamed_on(experiment.user_packages):
        nodes = known_nodes(experiment, population.sizes, population.iid, tensors, buffers, last_layer(module))
        experiment.build_strategy().begin(with_timetable(nodes, experiment, population))


def with_timetable(nodes: Nodes, experiment: Experiment, population: Population) -> Nodes:
    """The nodes with the timetable of the experiment's availability."""
    availability, labels = experiment.build_availability(), None
    if availability.needs_labels:
        if population.samples.task == "regression" or len(population.described) < population.count:
            problem = "needs the labels of every node, which these data do not have"
            raise InputError("coupling", Shown("by-label"), problem=problem)
        labels = population.histogram.argmax(axis=1)
    timetable = availability.timetable(nodes, experiment.seed, labels)
    if timetable is not None:
        first = np.asarray(timetable.next_rounds(1))
        if first.shape != (nodes.count,) or first.dtype.kind != "i" or first.min() < 1:
            problem = f"its next_rounds(1) returned {one_line(repr(first))}"
            wanted = f"it must return a whole number of 1 or more for each of {nodes.count} nodes"
            raise refused(availability.timetable, f"{problem}; {wanted}")
    return replace(nodes, timetable=timetable)


def _refuse_stepless(experiment: Experiment, parameters: int) -> None:
    """An optimiser of the user's whose `start` returns no function of a gradient."""
    if ":" not in experiment.optimizer:
        return
    import torch

    optimizer = experiment.build_optimizer()
    with blamed_on(experiment.user_packages):
        step, gradient = optimizer.start(torch.zeros(parameters), experiment.lr_at(1)), torch.zeros(parameters)
    try:
        inspect.signature(step).bind(gradient)
    except TypeError as error:
        problem = f"it must return a function of a gradient ({one_line(error)})"
        raise refused(optimizer.start, problem) from None
    except ValueError:  # a function of C has no signature to look at
        return


def _refuse_unmeasurable(experiment: Experiment, population: Population) -> None:
    """Metrics that need labels, of which there are none or too many, or whose import path names no metric."""
    metrics = experiment.build_metrics()
    if not metrics:
        return
    if population.samples.task == "regression":
        allowed = f"dataset {experiment.dataset} is a regression, which has no labels"
        raise InputError("metrics", experiment.metrics, allowed)
    classes = population.samples.classes
    if classes > MOST_CLASSES and any(metric.of == TEST_SET for metric in metrics):
        allowed = f"there are {classes} labels, and metrics are measured for at most {MOST_CLASSES:,}"
        raise InputError("metrics", experiment.metrics, allowed)


def _refuse_single_samples(experiment: Experiment, population: Population, module: nn.Module, fit: Fit) -> None:
    """Batch normalisation needs two values per channel, which a last batch of one sample may not have."""
    import torch

    from fedpns_ray.core.models import has_batch_norm

    alone = np.flatnonzero(population.sizes % experiment.batch_size == 1 % experiment.batch_size)
    if not len(alone) or not has_batch_norm(module):
        return
    try:
        with torch.no_grad():
            module.train()(fit.inputs(1, *population.samples.shape))
    except ValueError:
        problem = f"leaves node {alone[0]} with a batch of one sample, which batch normalisation cannot be trained on"
        raise InputError("batch_size", experiment.batch_size, problem=problem, hint="change it") from None
