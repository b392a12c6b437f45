"""The theory, measured: the quantities of Sections IV-A and IV-D, from each round's updates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import Nodes, Updates, Vector


@dataclass(frozen=True)
class Gradients:
    """g_i = -delta_i / (tau_i eta), the mean gradient of a node's local steps: the scale of the published Figure 6.

    gamma_i (Assumption 3), delta (Assumption 2) and Remark 1 follow from these.
    """

    norms: list[float]
    """||g_i|| of every node that returned, in the order of node ids."""
    norm_of_mean: float
    """||gbar||."""
    iid: float | None
    """The mean of ||g_i|| over the i.i.d. nodes that returned; None if there were none."""
    other: float | None


def measure(updates: Updates, nodes: Nodes) -> Gradients | None:
    """The gradients of the nodes that returned; None if none did."""
    if not len(updates):
        return None
    scale = 1 / (updates.steps * updates.lr)
    norms = updates.norms() * scale
    mean = np.einsum("i,ik->k", scale, updates.of_parameters, dtype=np.float64) / len(updates)
    iid = nodes.iid[list(updates.node_ids)]
    return Gradients(
        norms=[float(f"{norm:.9g}") for norm in norms],
        norm_of_mean=float(np.sqrt(np.einsum("k,k->", mean, mean))),
        iid=_mean(norms[iid]),
        other=_mean(norms[~iid]),
    )


def divergence(weights: Vector, centralised: Vector) -> float:
    """||w_t - v_t||, the weight divergence that Theorem 1 bounds; v has no buffers."""
    apart = weights[: len(centralised)].astype(np.float64) - centralised
    return float(np.sqrt(np.einsum("k,k->", apart, apart)))


def _mean(norms: NDArray[np.float64]) -> float | None:
    return float(norms.mean()) if len(norms) else None
