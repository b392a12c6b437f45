"""What nodes hold: data sets, and how they are spread over nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpns_ray.config import Experiment
from fedpns_ray.data import partitions
from fedpns_ray.data.population import Population, from_lists
from fedpns_ray.data.sources import load
from fedpns_ray.data.synthetic import synthetic
from fedpns_ray.streams import stream

__all__ = ["Population", "build_population"]


def build_population(experiment: Experiment, root: Path | None = None) -> Population:
    """The population of an experiment: a function of its data settings and its seed, whatever else changes."""
    e = experiment
    sizes = partitions.node_sizes(stream(e.seed, "node sizes"), e.nodes, e.samples_per_node, e.size_spread)
    iid_nodes = {"iid": e.nodes, "sigma-rho": round(e.sigma * e.nodes), "natural": round(e.sigma * e.nodes)}.get(
        e.partition, 0
    )
    if e.dataset == "synthetic":
        return synthetic(
            lambda node: stream(e.seed, "synthetic node", node=node),
            stream(e.seed, "labeller"),
            sizes,
            iid_nodes,
            e.varrho,
            e.labeller,
            e.test_nodes,
        )
    samples = load(e.dataset, root)
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
