"""The theory from the records of a run: Assumptions 2 and 3, Remark 1, Lemma 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.records.record import Record
from fedpns_ray.strategies.optimal_aggregation import EXPECTATION, EXPECTATION_AFTER
from fedpns_ray.strategies.pns import PROBABILITY

DELTA = Quantity("delta", "delta (Assumption 2)")
GAMMA_SELECTED = Quantity("gamma_selected", "sum of p_i gamma_i (Remark 1)")
GAMMA_MEAN = Quantity("gamma_mean", "mean of gamma_i (Remark 1)")
QUANTITIES = (DELTA, GAMMA_SELECTED, GAMMA_MEAN)
"""What is computed from records and not stored in them."""


def theory(records: Sequence[Record], nodes: int) -> dict[str, NDArray[np.float64]]:
    """The theory's quantities, one value per round (NaN where a round has none).

    delta: the least that Assumption 2 allows. gamma_selected: sum of p_i gamma_i; gamma_mean: the mean of gamma_i; by
    Remark 1 the former should be lower. expectation and expectation_after: Lemma 1's term over all updates, and over
    those left after exclusion.
    """
    gamma = gammas(records, nodes)
    seen = ~np.isnan(gamma)
    mean = float(gamma[seen].mean()) if seen.any() else np.nan
    selected = [_selected(record.get(PROBABILITY.key), gamma, seen) for record in records]
    return {
        DELTA.key: np.array([delta(record) for record in records]),
        GAMMA_SELECTED.key: np.array(selected),
        GAMMA_MEAN.key: np.full(len(records), mean),
        EXPECTATION.key: _column(records, EXPECTATION.key),
        EXPECTATION_AFTER.key: _column(records, EXPECTATION_AFTER.key),
    }


def delta(record: Record) -> float:
    """Assumption 2: sqrt(mean ||g_i||^2) / ||gbar||, the dissimilarity of the gradients of a round."""
    norms, of_mean = record.gradient_norms, record.gradient_norm_of_mean
    if not norms or not of_mean:
        return float("nan")
    return float(np.sqrt(np.mean(np.square(norms)))) / float(of_mean)


def gammas(records: Sequence[Record], nodes: int) -> NDArray[np.float64]:
    """Assumption 3: for every node the largest ||g_i|| of the run; NaN for a node that never returned."""
    largest = np.full(nodes, np.nan)
    for record in records:
        if norms := record.gradient_norms:
            who = record.returned or record.drawn
            largest[who] = np.fmax(largest[who], np.array(norms, dtype=float))
    return largest


def _selected(probability: Any, gamma: NDArray[np.float64], seen: NDArray[np.bool_]) -> float:
    """Remark 1's sum, over the nodes whose gamma is known, with their probabilities scaled to sum to 1."""
    if probability is None:
        return float("nan")
    p = np.array(probability, dtype=float)[seen]
    return float(p @ gamma[seen] / p.sum()) if p.sum() > 0 else float("nan")


def _column(records: Sequence[Record], key: str) -> NDArray[np.float64]:
    return np.array([record.get(key) for record in records], dtype=float)
