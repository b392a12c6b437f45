"""What nodes hold: data sets, and how they are spread over nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpns_ray.core.streams import stream
from fedpns_ray.data.interfaces import GeneratedDataset, Samples
from fedpns_ray.data.partitions.pile import node_sizes
from fedpns_ray.data.population import Population, from_lists
from fedpns_ray.errors import InputError

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

__all__ = ["Population", "build_population", "count_iid", "load_samples"]


def count_iid(experiment: Experiment) -> int:
    """How many nodes hold i.i.d. data; they are the first ones. 0 if only user code that is not imported knows."""
    if not experiment.imported and ":" in experiment.dataset + experiment.partition:
        return 0
    dataset, partition = experiment.build_dataset(), experiment.build_partition()
    return (dataset if isinstance(dataset, GeneratedDataset) else partition).iid_nodes(experiment.nodes)


def load_samples(experiment: Experiment) -> Samples | None:
    """The samples of an experiment's data set; None if they are made for its nodes."""
    dataset = experiment.build_dataset()
    return None if isinstance(dataset, GeneratedDataset) else dataset.load()


def build_population(experiment: Experiment, samples: Samples | None = None) -> Population:
    """The population of an experiment, which depends on its data settings and its seed alone.

    `samples` are those of its data set, if they are loaded already.
    """
    e, dataset = experiment, experiment.build_dataset()
    sizes = node_sizes(stream(e.seed, "node sizes"), e.nodes, e.samples_per_node, e.size_spread)
    if isinstance(dataset, GeneratedDataset):
        return dataset.population(e.seed, sizes)
    partition = e.build_partition()
    samples = samples or dataset.load()
    if partition.by_label and (samples.task == "regression" or samples.targets):
        allowed = f"it needs one label per sample, which dataset {e.dataset} does not have; use iid or natural"
        raise InputError("partition", e.partition, allowed)
    partition.check(samples.classes, e.samples_per_node)
    held = partition.spread(stream(e.seed, "partition"), samples, sizes)
    return from_lists(samples, held, np.arange(e.nodes) < partition.iid_nodes(e.nodes))
