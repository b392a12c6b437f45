"""A user-defined partition: a few nodes hold most of the data, and each node prefers one label.

    fedpns run --dataset mnist --partition examples.own_partition:Favourites --set favour=0.8
    fedpns data show --dataset mnist --partition examples.own_partition:Favourites

A partition is told how many samples each node should have, and returns the positions of each node's samples in the
training set. Its fields are its parameters: flags of the command line, axes of a study, arguments of `Experiment`.
"""

import numpy as np
from pydantic import Field

from fedpns_ray.data.interfaces import Partition


class Favourites(Partition):
    """Node i holds a fraction `favour` of samples with the label i mod 10, and others at random."""

    name = "favourites"
    favour: float = Field(0.5, ge=0, le=1)
    """Fraction of a node's samples that have its favourite label."""

    def spread(self, rng, samples, sizes):
        by_label = [np.flatnonzero(samples.train_y == label) for label in range(samples.classes)]
        held = []
        for node, size in enumerate(sizes):
            liked = by_label[node % samples.classes]
            first = rng.choice(liked, size=round(self.favour * size), replace=False)
            rest = np.setdiff1d(np.arange(len(samples.train_y)), first)
            held.append(np.concatenate([first, rng.choice(rest, size=size - len(first), replace=False)]))
        return held
