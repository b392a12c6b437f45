"""A user-defined aggregation: the mean of what is left when the extremes of each parameter are cut off.

    fedpns run --aggregation examples.own_aggregation:TrimmedMean --set trim=0.2
    fedpns compare --strategies fedpns,fedavg --aggregation examples.own_aggregation:TrimmedMean

An aggregation is given the weights and the updates of a round (one row per node), and returns the new weights.
"""

import numpy as np
from pydantic import Field

from fedpns_ray.strategies import Aggregation, Outcome, average


class TrimmedMean(Aggregation):
    """For each parameter, the mean without the lowest and the highest values (Yin et al. 2018)."""

    name = "trimmed-mean"
    trim: float = Field(0.1, ge=0, lt=0.5)
    """The fraction of values that is cut off at each end, from 0 to below 0.5."""

    def combine(self, weights, updates, check_loss):
        cut = int(self.trim * len(updates))
        inner = np.sort(updates.deltas, axis=0)[cut : len(updates) - cut]
        return Outcome(average(weights, inner), aggregated=updates.node_ids)
