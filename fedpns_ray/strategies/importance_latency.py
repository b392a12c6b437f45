"""Scheduling by importance and channel (Ren et al. 2020): large updates over fast uplinks, still unbiased."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.interfaces import Nodes, Updates
from fedpns_ray.strategies.candidates import CandidateSelection, weighted_norms

BISECTIONS = 200
"""More than float64 resolves; a fixed number, so that the bits are always the same."""


class ImportanceLatencySelection(CandidateSelection):
    """Of |M| nodes that train, |S_t| send, drawn one after another by importance and upload time (needs devices).

    For one node per round, p is read as the minimiser of rho x gradient divergence + (1 - rho) x expected upload time;
    the divergence of an unbiased draw is, up to a constant, the sum of a_i^2 / p_i with a_i = psi_i ||g_i||. Both terms
    are normalised (a by its sum, times by their mean), so that rho has no unit. For several nodes the paper draws
    without replacement; the shares here are those of Des Raj's estimator, which keeps the sum unbiased.
    """

    name = "importance-latency"
    unbiased = "samples"
    importance: float = Field(0.5, gt=0, le=1)
    """rho: 1 considers importance only, near 0 latency only. (Dimensionless here, so not the paper's number.)"""

    def begin(self, nodes: Nodes) -> None:
        nodes.needed_devices(self.name)
        super().begin(nodes)

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        if not len(updates) or updates.upload is None:
            return updates
        p = probabilities(weighted_norms(updates), updates.upload, self.importance)
        size = min(self.size(updates), int(np.count_nonzero(p)))
        order = [int(k) for k in rng.choice(len(p), size, replace=False, p=p)]
        shares = np.zeros(len(p))
        shares[order] = des_raj(p[order]) * updates.sizes[order] / updates.sizes.sum()
        return replace(updates, shares=shares).subset(sorted(order))


def probabilities(importance: NDArray[np.float64], latency: NDArray[np.float64], rho: float) -> NDArray[np.float64]:
    """p_i = a_i sqrt(rho / ((1 - rho) T_i + lambda)), with the lambda that makes them sum to 1.

    The stationary point of rho sum a_i^2 / p_i + (1 - rho) sum p_i T_i + lambda (sum p_i - 1). If all norms are 0, all
    nodes are equally important.
    """
    if not importance.any():
        importance = np.ones(len(importance))
    a, cost = importance / importance.sum(), (1 - rho) * latency / latency.mean()
    low = -float(cost[a > 0].min())  # here some p_i is infinite
    high = rho  # here p_i <= a_i, as no cost is below 0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _at(a, cost, rho, middle).sum() > 1:
            low = middle
        else:
            high = middle
    p = _at(a, cost, rho, high)
    return p / p.sum()


def _at(a: NDArray[np.float64], cost: NDArray[np.float64], rho: float, multiplier: float) -> NDArray[np.float64]:
    below = np.where(a > 0, np.maximum(cost + multiplier, np.finfo(float).tiny), 1.0)
    return a * np.sqrt(rho / below)


def des_raj(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weight of the k-th of m draws without replacement that makes the sum over the draws unbiased.

    Des Raj: t_k = y_1 + … + y_{k-1} + y_k (1 - p_1 - … - p_{k-1}) / p_k estimates the whole sum, and so does the mean
    of the t_k.
    """
    m = len(p)
    left = 1 - np.concatenate([[0.0], np.cumsum(p)[:-1]])
    return (np.maximum(left, 0.0) / p + np.arange(m - 1, -1, -1)) / m
