"""Predicted updates (Chen, Poor, Saad and Cui 2020, "Convergence time optimization for federated learning …").

A network at the server predicts the updates of nodes that had no bandwidth, and these join the average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from fedpns_ray.core.interfaces import Aggregation, CheckLoss, Nodes, Outcome, Probe, Rows, Updates, Vector, average
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.core.streams import stream
from fedpns_ray.errors import InputError
from fedpns_ray.strategies.fedavg import by_probability, present, uniform
from fedpns_ray.strategies.memory import MOST_BYTES
from fedpns_ray.strategies.norm_sampling import NormSamplingSelection

PREDICTED = Quantity("predicted_nodes", "nodes whose updates were predicted", better="higher")
ERROR = Quantity("prediction_error", "error of predictions against updates", better="lower")


class AnchoredSelection(NormSamplingSelection):
    """As `norm-sampling`, but i*, the node with the most samples, trains and sends in every round that it can."""

    name = "anchored-norm-sampling"
    _anchor: int

    def begin(self, nodes: Nodes) -> None:
        super().begin(nodes)
        self._anchor = anchor_of(nodes)

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        anchor = [self._anchor] if self._anchor in there else []
        return anchor + uniform(rng, np.setdiff1d(there, anchor), self.candidates - len(anchor))

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        is_anchor = np.array(updates.node_ids) == self._anchor
        anchor, others = np.flatnonzero(is_anchor), np.flatnonzero(~is_anchor)
        drawn = by_probability(rng, updates.norms()[others], self.size(updates) - len(anchor))
        return updates.subset(sorted([*anchor.tolist(), *others[drawn].tolist()]))


class PredictedAggregation(Aggregation):
    """The mean of the updates that were sent and of those that a network predicts for the other nodes.

    The network's input is x = (delta_* / ||delta_*||, 1), with delta_* the update of the node i* that always sends; its
    hidden layer h = (tanh(V x), 1); its output for node i is U_i h, which is delta_i in units of s, the mean norm of
    the sent updates. U starts at 0, V at standard normal numbers. Each round U_i of the nodes that sent, and V, take
    `predictor_steps` steps down the gradient of the mean of ||U_i h - delta_i / s||^2 / 2 (for U_i: of its own term). A
    node that does not send is predicted if the error ||U_i h - delta_i / s|| / ||delta_i / s||, when it last sent, was
    at most gamma (`largest_error`). In a round without i*, nothing is predicted or learned.
    """

    name = "predicted"
    quantities = (PREDICTED, ERROR)
    neurons: PositiveInt = 5
    """Of the hidden layer."""
    predictor_lr: PositiveFloat = 0.1
    """Learning rate of the network."""
    predictor_steps: PositiveInt = 3
    """Steps per round on the updates that were sent."""
    largest_error: NonNegativeFloat = 0.5
    """gamma, the relative error of a node's last prediction up to which it is predicted; that of predicting 0 is 1."""
    _anchor: int
    _inner: NDArray[np.float64]
    _outer: Rows
    _errors: NDArray[np.float64]

    def begin(self, nodes: Nodes) -> None:
        shape = (nodes.count, self.neurons + 1, nodes.parameters)
        if 4 * math.prod(shape) > MOST_BYTES:
            problem = (
                f"takes more than {MOST_BYTES // 2**30} GiB for {nodes.count} nodes and {nodes.parameters} parameters"
            )
            raise InputError("neurons", self.neurons, "use fewer, or fewer nodes, or a smaller model", problem=problem)
        self._anchor, self._errors = anchor_of(nodes), np.full(nodes.count, np.inf)
        self._inner = stream(nodes.seed, "predictor").standard_normal((self.neurons, nodes.parameters + 1))
        self._outer = np.zeros(shape, dtype=np.float32)

    def combine(self, weights: Vector, updates: Updates, check_loss: CheckLoss) -> Outcome:
        mean, norms = average(weights, updates.deltas, updates.shares), updates.norms()
        at = np.flatnonzero(np.array(updates.node_ids) == self._anchor)
        if not len(at) or not norms[at[0]] > 0:
            return Outcome(mean, updates.node_ids, notes={PREDICTED.key: 0, ERROR.key: None})
        x = np.append(updates.of_parameters[at[0]] / norms[at[0]], 1.0)
        absent = np.setdiff1d(np.flatnonzero(self._errors <= self.largest_error), updates.node_ids)
        m, p, scale = len(updates), len(absent), norms.mean()
        if p:
            predicted = scale * np.einsum("d,idk->k", hidden(self._inner, x), self._outer[absent])
            there = slice(len(predicted))
            mean[there] = weights[there] + (m * (mean[there] - weights[there]).astype(np.float64) + predicted) / (m + p)
        others = np.delete(np.arange(m), at)
        error = self._fit(x, np.array(updates.node_ids)[others], updates.of_parameters[others] / scale)
        return Outcome(mean, updates.node_ids, notes={PREDICTED.key: p, ERROR.key: error})

    def _fit(self, x: NDArray[np.float64], nodes: NDArray[np.int64], targets: NDArray[np.float64]) -> float | None:
        """Learn from the updates that were sent; the mean error of what would have been predicted instead."""
        if not len(nodes):
            return None
        known = np.isfinite(self._errors[nodes])
        own = self._outer[nodes].astype(np.float64)
        for step in range(self.predictor_steps):
            h = hidden(self._inner, x)
            off = np.einsum("d,idk->ik", h, own) - targets
            if step == 0:
                self._errors[nodes] = relative(off, targets)
            back = np.einsum("idk,ik->d", own[:, :-1], off) / len(nodes) * (1 - h[:-1] ** 2)
            own -= self.predictor_lr * off[:, None, :] * h[None, :, None]
            self._inner -= self.predictor_lr * back[:, None] * x
        self._outer[nodes] = own
        shown = self._errors[nodes][known & np.isfinite(self._errors[nodes])]
        return float(shown.mean()) if len(shown) else None


def anchor_of(nodes: Nodes) -> int:
    """i*: the node with the most samples; a tie goes to the lower id."""
    return int(np.argmax(nodes.sizes))


def hidden(inner: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """(tanh(V x), 1)."""
    return np.append(np.tanh(np.einsum("dk,k->d", inner, x)), 1.0)


def relative(off: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """||off_i|| / ||targets_i||; infinite where the target is 0."""
    sizes = np.sqrt(np.einsum("ik,ik->i", targets, targets))
    found = np.sqrt(np.einsum("ik,ik->i", off, off))
    return np.divide(found, sizes, out=np.full(len(sizes), np.inf), where=sizes > 0)
