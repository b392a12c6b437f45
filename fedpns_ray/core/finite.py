"""Numbers that are not finite: which updates have them, and when a round has diverged."""

from __future__ import annotations

import numpy as np

from fedpns_ray.core.interfaces import Outcome, Updates, Vector


def no_updates(parameters: int, lr: float) -> Updates:
    """The empty updates of a round from which no node returned."""
    nobody = np.empty(0, dtype=np.int64)
    return Updates((), np.empty((0, parameters), dtype=np.float32), np.empty(0), nobody, nobody, lr)


def finite_updates(returned: Updates) -> tuple[Updates, list[int]]:
    """The updates whose every number is finite, and the nodes of the others."""
    fine = np.isfinite(returned.deltas).all(axis=1) & np.isfinite(returned.losses)
    if returned.states is not None:
        fine &= np.isfinite(returned.states).all(axis=1)
    if fine.all():
        return returned, []
    return returned.subset(np.flatnonzero(fine).tolist()), [returned.node_ids[k] for k in np.flatnonzero(~fine)]


def divergence_of(returned: Updates, updates: Updates, weights: Vector, outcome: Outcome) -> str:
    """Why a round has diverged; empty if it has not."""
    if len(returned) and not len(updates):
        return "no update is finite"
    if outcome.weights is not weights and not np.isfinite(outcome.weights).all():
        return "the aggregated model is not finite"
    return ""
