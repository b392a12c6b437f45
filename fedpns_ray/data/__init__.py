"""What nodes hold: data sets, and how they are spread over nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpns_ray.core.streams import stream
from fedpns_ray.core.user_code import blamed_on
from fedpns_ray.data.checking import checked_samples
from fedpns_ray.data.holdings import checked_holdings
from fedpns_ray.data.interfaces import Dataset, GeneratedDataset, Partition, Samples
from fedpns_ray.data.label_noise import with_label_noise
from fedpns_ray.data.partitions.pile import node_sizes
from fedpns_ray.data.population import Population, from_lists
from fedpns_ray.errors import InputError, Shown

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

__all__ = ["Dataset", "Partition", "Population", "Samples", "build_population", "count_iid", "load_samples"]


def count_iid(experiment: Experiment) -> int:
    """How many nodes hold i.i.d. data; they are the first ones. 0 if only user code that is not imported knows."""
    if not experiment.imported and ":" in experiment.dataset + experiment.partition:
        return 0
    dataset, partition = experiment.build_dataset(), experiment.build_partition()
    return (dataset if isinstance(dataset, GeneratedDataset) else partition).iid_nodes(experiment.nodes)


def load_samples(experiment: Experiment) -> Samples | None:
    """The samples of an experiment's data set; None if they are made for its nodes."""
    dataset = experiment.build_dataset()
    return None if isinstance(dataset, GeneratedDataset) else _loaded(experiment, dataset)


def _loaded(experiment: Experiment, dataset: Dataset) -> Samples:
    """The samples; those of a user's own data set are checked, and its errors are put down to it."""
    with blamed_on(experiment.user_packages):
        samples = dataset.load()
    if ":" not in experiment.dataset:
        return samples
    name = Shown(experiment.dataset)
    if not isinstance(samples, Samples):
        problem = f"cannot be used: load() returned an object of type {type(samples).__name__}"
        raise InputError("dataset", name, "it must return fedpns_ray.data.Samples", problem=problem)
    return checked_samples(samples, "dataset", name)


def build_population(experiment: Experiment, samples: Samples | None = None) -> Population:
    """The population of an experiment, which depends on its data settings and its seed alone.

    `samples` are those of its data set, if they are loaded already.
    """
    e, dataset = experiment, experiment.build_dataset()
    sizes = node_sizes(stream(e.seed, "node sizes"), e.nodes, e.samples_per_node, e.size_spread)
    if isinstance(dataset, GeneratedDataset):
        with blamed_on(e.user_packages):
            made = dataset.population(e.seed, sizes)
        return with_label_noise(made, e.seed, e.noisy_nodes, e.label_noise)
    partition = e.build_partition()
    samples = samples or _loaded(e, dataset)
    if partition.by_label and (samples.task == "regression" or samples.targets):
        allowed = f"it needs one label per sample, which dataset {e.dataset} does not have; use iid or natural"
        raise InputError("partition", e.partition, allowed)
    partition.check(samples.classes, e.samples_per_node)
    with blamed_on(e.user_packages):
        held = partition.spread(stream(e.seed, "partition"), samples, sizes)
    held = checked_holdings(held, e.partition, e.nodes, len(samples.train_y))
    population = from_lists(samples, held, np.arange(e.nodes) < partition.iid_nodes(e.nodes))
    return with_label_noise(population, e.seed, e.noisy_nodes, e.label_noise)
