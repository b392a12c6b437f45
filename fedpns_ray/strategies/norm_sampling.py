"""Probabilistic selection by update norm (Chen et al. 2021, "Communication-efficient federated learning")."""

from __future__ import annotations

import numpy as np

from fedpns_ray.core.interfaces import Updates
from fedpns_ray.strategies.candidates import CandidateSelection
from fedpns_ray.strategies.fedavg import by_probability


class NormSamplingSelection(CandidateSelection):
    """Of |M| nodes that train, |S_t| distinct ones send, with probability p_i = ||delta_i|| / sum of ||delta_j||.

    This is the norm term of that paper's probability, the only one that the FedPNS paper refers to; the original mixes
    it with the distance to the server, and quantises what is sent. There every node trains, and as many send as there
    is bandwidth for; |M| may be all of K. All sent updates have equal weight.
    """

    name = "norm-sampling"

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        return updates.subset(sorted(by_probability(rng, updates.norms(), self.size(updates))))
