"""What nodes hold: data sets, and how they are spread over nodes."""

from __future__ import annotations

import numpy as np

from fedpns_ray.core.streams import stream
from fedpns_ray.data import partitions
from fedpns_ray.data.population import Population, from_lists
from fedpns_ray.data.sources import Samples, load
from fedpns_ray.data.synthetic import synthetic
from fedpns_ray.experiment import Experiment

__all__ = ["DATA_SETTINGS", "Population", "build_population", "count_iid"]

DATA_SETTINGS = (
    "dataset", "partition", "nodes", "sigma", "rho", "varrho", "labeller", "test_nodes", "concentration",
    "shards_per_node", "samples_per_node", "size_spread", "seed",
)  # fmt: skip
"""Experiments that agree on these have the same population."""


def count_iid(experiment: Experiment) -> int:
    """How many nodes hold i.i.d. data; they are the first ones."""
    e = experiment
    some = round(e.sigma * e.nodes)
    return {"iid": e.nodes, "sigma-rho": some, "natural": some}.get(e.partition, 0)


def build_population(experiment: Experiment, samples: Samples | None = None) -> Population:
    """The population of an experiment, which depends on its data settings and its seed alone.

    `samples` are those of its data set, if they are loaded already.
    """
    e = experiment
    sizes = partitions.node_sizes(stream(e.seed, "node sizes"), e.nodes, e.samples_per_node, e.size_spread)
    iid_nodes = count_iid(e)
    if e.dataset == "synthetic":
        return synthetic(e.seed, sizes, iid_nodes, e.varrho, e.labeller, e.test_nodes)
    samples = samples or load(e.dataset)
    rng, labels = stream(e.seed, "partition"), samples.train_y
    match e.partition:
        case "iid":
            held = partitions.iid(rng, labels, sizes)
        case "dirichlet":
            held = partitions.dirichlet(rng, labels, samples.classes, sizes, e.concentration)
        case "shards":
            held = partitions.shards(rng, labels, sizes, e.shards_per_node)
        case _:
            held = partitions.sigma_rho(rng, labels, samples.classes, sizes, iid_nodes, e.rho)
    return from_lists(samples, held, np.arange(e.nodes) < iid_nodes)
