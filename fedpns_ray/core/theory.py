"""The theory, measured: what Sections IV-A and IV-D speak of, from each round's updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import Nodes, Updates, Vector


def measure(updates: Updates, nodes: Nodes) -> dict[str, Any]:
    """Norms of the gradients of all nodes that returned, in the order of their ids.

    g_i = -delta_i / (tau_i eta), the mean gradient of a node's local steps: the scale of the published Figure 6. From
    these follow gamma_i (Assumption 3), delta (Assumption 2) and Remark 1.
    """
    if not len(updates):
        return {}
    scale = 1 / (updates.steps * updates.lr)
    norms = updates.norms() * scale
    mean = np.einsum("i,ik->k", scale, updates.deltas, dtype=np.float64) / len(updates)
    iid = nodes.iid[list(updates.node_ids)]
    return {
        "gradient_norms": [float(f"{norm:.9g}") for norm in norms],
        "gradient_norm_of_mean": float(np.sqrt(np.einsum("k,k->", mean, mean))),
        "gradient_norm_iid": float(norms[iid].mean()) if iid.any() else None,
        "gradient_norm_other": float(norms[~iid].mean()) if not iid.all() else None,
    }


def divergence(weights: Vector, centralised: Vector) -> float:
    """||w_t - v_t||, the weight divergence that Theorem 1 bounds."""
    apart = weights.astype(np.float64) - centralised
    return float(np.sqrt(np.einsum("k,k->", apart, apart)))


def theory(records: Sequence[Mapping[str, Any]], nodes: int) -> dict[str, NDArray[np.float64]]:
    """From the records of a run, one value a round (NaN where a round says nothing).

    delta: the least that Assumption 2 allows. gamma_selected: sum of p_i gamma_i; gamma_mean: the mean of gamma_i; by
    Remark 1 the first should be the lower one. expectation and expectation_after: Lemma 1's term over all updates, and
    over those that were left after exclusion.
    """
    gamma = gammas(records, nodes)
    seen = ~np.isnan(gamma)
    mean = float(gamma[seen].mean()) if seen.any() else np.nan
    return {
        "delta": np.array([delta(record) for record in records]),
        "gamma_selected": np.array([_selected(record.get("probability"), gamma, seen) for record in records]),
        "gamma_mean": np.full(len(records), mean),
        "expectation": _column(records, "expectation"),
        "expectation_after": _column(records, "expectation_after"),
    }


def delta(record: Mapping[str, Any]) -> float:
    """Assumption 2: sqrt(mean ||g_i||^2) / ||gbar||, the dissimilarity of the gradients of a round."""
    norms, of_mean = record.get("gradient_norms"), record.get("gradient_norm_of_mean")
    if not norms or not of_mean:
        return float("nan")
    return float(np.sqrt(np.mean(np.square(norms)))) / float(of_mean)


def gammas(records: Sequence[Mapping[str, Any]], nodes: int) -> NDArray[np.float64]:
    """Assumption 3: for every node the largest ||g_i|| of the run; NaN for a node that never returned."""
    largest = np.full(nodes, np.nan)
    for record in records:
        norms = record.get("gradient_norms")
        if norms:
            who = record.get("returned", record["drawn"])
            largest[who] = np.fmax(largest[who], np.array(norms, dtype=float))
    return largest


def _selected(probability: Any, gamma: NDArray[np.float64], seen: NDArray[np.bool_]) -> float:
    """Remark 1's sum, over the nodes whose gamma is known (their probabilities scaled to 1)."""
    if probability is None:
        return float("nan")
    p = np.array(probability, dtype=float)[seen]
    return float(p @ gamma[seen] / p.sum()) if p.sum() > 0 else float("nan")


def _column(records: Sequence[Mapping[str, Any]], key: str) -> NDArray[np.float64]:
    return np.array([record.get(key) for record in records], dtype=float)
