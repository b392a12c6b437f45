"""GPFL (Na et al. 2024): a bandit over how far each node's update points in the global direction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat

from fedpns_ray.core.interfaces import Nodes, Outcome, Probe, Selection, Updates
from fedpns_ray.strategies.candidates import largest
from fedpns_ray.strategies.fedavg import present, uniform


class ProjectionSelection(Selection):
    """Draws the |S_t| nodes of highest mean reward + a_t sqrt(2 ln t / n_i), after every node was drawn once.

    The gradient projection c_i = <delta_i, Delta> / ||Delta|| of a drawn node onto the global update becomes a reward
    by a softmax over the round's nodes, times 1 if the test accuracy rose, -1 if it fell, and half of either by the
    test loss if it stayed. n_i counts a node's draws; its mean starts with a reward of 0, as in the released code. a_t
    rises as t / 100 and falls as 200 / (t + 100) from t = 100 on. A round that is not tested brings no reward.
    """

    name = "gpfl"
    awaits_test: ClassVar[bool] = True
    bandit: Literal["rounds", "constant"] = "rounds"
    """a_t: rising to 1 in round 100 and falling after it, or a constant."""
    bandit_weight: NonNegativeFloat = 1.0
    """The constant, or a factor of the other a_t."""
    _nodes: Nodes
    _rewards: NDArray[np.float64]
    _draws: NDArray[np.int64]
    _round: int
    _drawn: NDArray[np.int64]
    _projected: NDArray[np.float64]
    _accuracy: float
    _loss: float

    def begin(self, nodes: Nodes) -> None:
        self._nodes, self._round, self._accuracy, self._loss = nodes, 0, 0.0, math.inf
        self._rewards, self._draws = np.zeros(nodes.count), np.zeros(nodes.count, dtype=np.int64)
        self._drawn, self._projected = np.zeros(0, dtype=np.int64), np.zeros(0)

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        size = min(self._nodes.per_round, len(there))
        fresh = there[self._draws[there] == 0]
        if len(fresh):
            drawn = uniform(rng, fresh, min(size, len(fresh)))
            return drawn + uniform(rng, np.setdiff1d(there, drawn), size - len(drawn))
        return [int(there[k]) for k in largest(self.bounds(there), size)]

    def bounds(self, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """The upper confidence bound of nodes that were drawn before; t is the number of rounds so far."""
        n, t = self._draws[nodes], max(1, self._round)
        weight = self.bandit_weight * (1.0 if self.bandit == "constant" else schedule(t))
        return self._rewards[nodes] / (n + 1) + weight * np.sqrt(2 * math.log(t) / n)

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        self._round += 1
        self._drawn = np.array(updates.node_ids, dtype=np.int64)
        self._draws[self._drawn] += 1
        step = np.zeros(0, dtype=np.float32) if outcome.step is None else outcome.step
        self._projected = projections(updates, step)

    def hear(self, accuracy: float, loss: float) -> None:
        sign = improvement(accuracy - self._accuracy, loss - self._loss)
        self._rewards[self._drawn] += sign * softmax(self._projected)
        self._accuracy, self._loss = accuracy, loss
        self._drawn, self._projected = self._drawn[:0], self._projected[:0]


def schedule(t: int) -> float:
    """a_t of the released code."""
    return t / 100 if t < 100 else 200 / (t + 100)


def projections(updates: Updates, step: NDArray[np.float32]) -> NDArray[np.float64]:
    """c_i = <delta_i, Delta> / ||Delta|| of every update; 0 where the model did not move."""
    deltas = updates.of_parameters
    direction = step[: deltas.shape[1]].astype(np.float64)
    norm = math.sqrt(float(np.einsum("k,k->", direction, direction)))
    if not norm or not len(updates):
        return np.zeros(len(updates))
    return np.einsum("ik,k->i", deltas, direction, dtype=np.float64) / norm


def softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    p = np.exp(values - values.max(initial=-np.inf))
    return p / p.sum() if len(p) else p


def improvement(accuracy: float, loss: float) -> float:
    """From the change of both: 1 if accuracy rose, -1 if it fell; otherwise, or where it is NaN, half of it by loss."""
    if accuracy > 0:
        return 1.0
    if accuracy < 0:
        return -1.0
    return 0.5 if loss < 0 else -0.5 if loss > 0 else 0.0
