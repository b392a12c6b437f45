"""Whether a model and a strategy can work with a population: checked before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpns_ray.core.run import known_nodes
from fedpns_ray.core.user_code import blamed_on
from fedpns_ray.data.interfaces import MOST_HELD
from fedpns_ray.data.population import GeneratedPopulation, Population
from fedpns_ray.errors import InputError, Shown

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment


def check_fits(experiment: Experiment, population: Population) -> None:
    """Raise an InputError if the model or the strategy cannot work with this population."""
    from fedpns_ray.core.models import CohortModel, FlatModel, build_model, refuse_unvectorisable

    if experiment.centralised and isinstance(population, GeneratedPopulation):
        allowed = f"it passes over all samples, which are held for at most {MOST_HELD} nodes of generated data"
        raise InputError("centralised", Shown("true"), allowed)
    module = build_model(experiment.model, population.samples.shape, population.samples.classes, experiment.seed)
    if experiment.vectorize == "on" and not isinstance(module, CohortModel):
        refuse_unvectorisable(experiment.model, FlatModel(module), population.samples.shape)
    payload = 4 * sum(p.numel() for p in module.parameters() if p.requires_grad)
    with blamed_on(experiment.user_packages):
        experiment.build_strategy().begin(known_nodes(experiment, population.sizes, population.iid, payload))
