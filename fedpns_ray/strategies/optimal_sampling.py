"""Optimal client sampling (Chen, Horvath and Richtarik 2020): unbiased, with the least variance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import Updates
from fedpns_ray.strategies.candidates import CandidateSelection, weighted_norms


class OptimalSamplingSelection(CandidateSelection):
    """Of |M| nodes that train, each sends independently with probability p_i, and then weighs psi_i / p_i.

    So the expected sum of the sent updates is the sum of psi_i delta_i over all |M|, whatever p is; the p below has the
    least variance for m = |S_t| expected senders. In a round in which no node sends, the model stays as it is.
    """

    name = "optimal-sampling"
    unbiased = "samples"

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        if not len(updates):
            return updates
        p = optimal_probabilities(weighted_norms(updates), self._nodes.per_round)
        sent = rng.random(len(updates)) < p
        shares = np.divide(updates.sizes / updates.sizes.sum(), p, out=np.zeros(len(p)), where=p > 0)
        return replace(updates, shares=shares).subset(np.flatnonzero(sent).tolist())


def optimal_probabilities(norms: NDArray[np.float64], m: int) -> NDArray[np.float64]:
    """The paper's optimal participation: p_i = (m + l - n) ||u_i|| / sum of the l smallest norms; 1 for the others.

    l is the largest number with 0 < m + l - n <= (sum of the l smallest norms) / (the l-th smallest). The p_i sum to m.
    If all norms are 0, all p_i are equal; if only those l are 0, nothing is lost by never sending them.
    """
    n = len(norms)
    if n <= m:
        return np.ones(n)
    if not norms.any():
        return np.full(n, m / n)
    ascending = np.argsort(norms, kind="stable")
    sums = np.cumsum(norms[ascending])
    for size in range(n, n - m, -1):
        certain = n - size
        if (m - certain) * norms[ascending[size - 1]] <= sums[size - 1]:
            break
    p = np.ones(n)
    p[ascending[:size]] = (m - certain) * norms[ascending[:size]] / (sums[size - 1] or 1.0)
    return np.minimum(p, 1.0)
