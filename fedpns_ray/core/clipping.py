"""A bound on what one node can do to a round: no update counts for more than a multiple of the others' norm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpns_ray.core.interfaces import Updates


def clip(updates: Updates, times: float) -> tuple[Updates, list[int]]:
    """Updates whose norm is above `times` the median norm, scaled down to that; and the nodes of those updates.

    The median of an even number of norms is the lower one of the two in the middle: with their mean, one node of two
    could raise its own limit. Norms and factors are float64, summed without BLAS, so that threads change no bit.
    """
    if not len(updates):
        return updates, []
    norms = updates.norms()
    limit = times * np.sort(norms)[(len(norms) - 1) // 2]
    above = np.flatnonzero(norms > limit)
    if not len(above):
        return updates, []
    deltas = updates.deltas.copy()
    for k in above:  # one by one: a round may hold thousands of large updates
        deltas[k] = deltas[k] * (limit / norms[k])
    return replace(updates, deltas=deltas), [updates.node_ids[k] for k in above]
