"""Whether a model and a strategy can work with a population: checked before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpns_ray.core.run import known_nodes
from fedpns_ray.core.user_code import blamed_on
from fedpns_ray.data.interfaces import Samples
from fedpns_ray.data.population import Population
from fedpns_ray.errors import InputError, Shown, one_line

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment


def check_fits(experiment: Experiment, population: Population) -> None:
    """Raise an InputError if the model or the strategy cannot work with this population."""
    from fedpns_ray.core.models import CohortModel, FlatModel, build_model, refuse_unvectorisable

    module = build_model(experiment.model, population.samples.shape, population.samples.classes, experiment.seed)
    _refuse_unreadable(experiment.model, module, population.samples)
    if experiment.vectorize == "on" and not isinstance(module, CohortModel):
        refuse_unvectorisable(experiment.model, FlatModel(module), population.samples.shape)
    payload = 4 * sum(p.numel() for p in module.parameters() if p.requires_grad)
    with blamed_on(experiment.user_packages):
        experiment.build_strategy().begin(known_nodes(experiment, population.sizes, population.iid, payload))


def _refuse_unreadable(name: str, module: Any, samples: Samples) -> None:
    """A model that computes with numbers cannot read tokens: it needs an embedding first."""
    import torch

    if samples.train_x.dtype != np.int64:
        return
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            module(torch.tensor(samples.test_x[:2]))
    except Exception as error:  # the module may be the user's, and torch raises many kinds of errors
        problem = f"cannot read integer tokens ({type(error).__name__}: {one_line(error)})"
        raise InputError(
            "model", Shown(name), "store numbers that are not tokens as float32", problem=problem
        ) from None
