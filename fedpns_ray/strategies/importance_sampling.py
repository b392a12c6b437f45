"""Data selection on the node by importance sampling (Rizk, Vlaski and Sayed 2021, "Optimal importance sampling …")."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.interfaces import Objective


class ImportanceSampledObjective(Objective):
    """The loss of the node's own data (3), from mini-batches whose samples are drawn by the norm of their gradients.

    p_n = (1 - u) ||g_n|| / (sum of ||g_m||) + u / D_i, with g_n the gradient of sample n under the round's global model
    w. A sample drawn with p_n counts 1 / (D_i p_n), so that every step is unbiased; p_n > 0 keeps it so when the
    weights have moved on, and bounds that weight by 1 / u. As many samples are drawn as the epochs have, with
    replacement. If all gradients are 0, or one is not finite, all samples are equally likely.
    """

    name = "importance-sampled"
    draws_samples = True
    uniform_share: float = Field(0.1, gt=0, le=1)
    """u, the share of uniform sampling in the probabilities; 1: uniform, with replacement."""

    def probabilities(self, norms: NDArray[np.float64]) -> NDArray[np.float64]:
        total, count = float(norms.sum()), len(norms)
        by_norm = norms / total if 0 < total < np.inf else np.full(count, 1 / count)
        return (1 - self.uniform_share) * by_norm + self.uniform_share / count
