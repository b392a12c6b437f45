"""Mini-batches whose samples are drawn by probability, with the weights that keep every gradient unbiased.

A node's epoch is otherwise a reshuffle of its samples. An objective that `draws_samples` turns the norms of their
gradients into probabilities; a sample drawn with probability p counts 1 / (D_i p) in its batch, so that the expected
gradient of a batch is that of the node's whole data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpns_ray.core.interfaces import Objective
from fedpns_ray.core.models import FlatModel
from fedpns_ray.core.user_code import refused


def gradient_norms(model: FlatModel, x: Tensor, y: Tensor) -> NDArray[np.float64]:
    """||grad of the loss of sample n|| under the weights that are loaded: one forward and backward pass per sample."""
    norms = torch.empty(len(y), dtype=torch.float64, device=x.device)
    for k in range(len(y)):
        model.loss_and_gradient(x[k : k + 1], y[k : k + 1])
        norms[k] = torch.linalg.vector_norm(model.gradient, dtype=torch.float64)
    return norms.cpu().numpy()


def probabilities(objective: Objective, norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the objective makes of the norms; refused unless it is a probability for every sample."""
    p = np.asarray(objective.probabilities(norms))
    if p.shape != norms.shape or p.dtype.kind != "f" or not (p >= 0).all() or abs(float(p.sum()) - 1) > 1e-6:
        problem = f"it returned {p!r:.100}; it must return {len(norms)} probabilities that sum to 1"
        raise refused(objective.probabilities, problem)
    return p.astype(np.float64) / p.sum(dtype=np.float64)


def drawn_batches(
    rng: np.random.Generator, p: NDArray[np.float64], sizes: Sequence[int]
) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Batches of these sizes, drawn with replacement by p: positions of samples, and the weight 1 / (D_i p) of each."""
    drawn = rng.choice(len(p), size=sum(sizes), p=p)
    return [(at, 1 / (len(p) * p[at])) for at in np.split(drawn, np.cumsum(sizes)[:-1])]
