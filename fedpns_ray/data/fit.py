"""Whether a model and a strategy can work with a population: checked before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpns_ray.core.run import known_nodes
from fedpns_ray.core.user_code import blamed_on
from fedpns_ray.data.population import Population

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment


def check_fits(experiment: Experiment, population: Population) -> None:
    """Raise an InputError if the model or the strategy cannot work with this population."""
    from fedpns_ray.core.models import CohortModel, Fit, FlatModel, model_for, refuse_unvectorisable

    samples = population.samples
    module = model_for(experiment, samples)
    fit = Fit.to(samples, experiment)
    closed = fit.task.is_cross_entropy(fit.targets) and isinstance(module, CohortModel)
    if experiment.vectorize == "on" and not closed:
        refuse_unvectorisable(experiment.model, FlatModel(module, loss=fit.task.loss), samples.shape, fit)
    payload = 4 * sum(p.numel() for p in module.parameters() if p.requires_grad)
    with blamed_on(experiment.user_packages):
        experiment.build_strategy().begin(known_nodes(experiment, population.sizes, population.iid, payload))
