"""FedCor (Tang et al. 2022): a Gaussian process over loss changes says whose training helps the others most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from fedpns_ray.core.interfaces import Nodes, Outcome, Probe, Selection, Updates
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.fedavg import present, uniform
from fedpns_ray.strategies.gaussian_process import Matrix, fitted, most_informative


class CorrelatedSelection(Selection):
    """Picks nodes greedily by alpha_k sum_i p_i Sigma_ik / sqrt(Sigma_kk), conditioning Sigma on every pick.

    Sigma is the covariance of the loss changes of all nodes in a round: X'X + noise^2 I, with an embedding x_k of every
    node, fitted to samples by maximum likelihood. A sample is a round with a uniform draw, before and after which all
    nodes report their losses; every report is counted as cost. The first `warmup` rounds are such rounds, and later
    every `fit_every`-th. alpha_k falls by `annealing` whenever k is drawn, and is 1 again after a fit. (The released
    code takes a later sample from an additional round whose model is thrown away; here that round is a round.)
    """

    name = "fedcor"
    warmup: PositiveInt = 15
    """Rounds with a uniform draw at first, all of them sampled."""
    fit_every: int = Field(10, ge=2)
    """After the warm-up, one round in so many is sampled."""
    annealing: float = Field(0.9, gt=0, le=1)
    """The factor by which alpha_k shrinks when node k is drawn."""
    history: PositiveInt = 100
    """Rounds after which a sample is forgotten."""
    forgetting: float = Field(0.95, gt=0, le=1)
    """The weight of a sample falls by this factor each round."""
    dimension: int = Field(15, ge=1, le=64)
    """Numbers in the embedding of a node."""
    loss_noise: PositiveFloat = 0.01
    """The standard deviation of a loss change that no other node shares."""
    first_fit_steps: PositiveInt = 1000
    """Steps of Adam (learning rate 0.01) in the first fit."""
    fit_steps: PositiveInt = 100
    """Steps of Adam in every later fit."""
    _nodes: Nodes
    _round: int
    _embedding: Matrix
    _alpha: NDArray[np.float64]
    _losses: NDArray[np.float64]
    _samples: Matrix
    _sampled: NDArray[np.int64]
    _last_fit: Any = None

    def begin(self, nodes: Nodes) -> None:
        self._nodes, self._round, self._alpha = nodes, 0, np.ones(nodes.count)
        start = stream(0, "embedding of nodes").standard_normal((self.dimension, nodes.count))
        self._embedding = start / np.sqrt(self.dimension)
        self._losses, self._last_fit = np.full(nodes.count, np.nan), None
        self._samples, self._sampled = np.zeros((0, nodes.count)), np.zeros(0, dtype=np.int64)

    def samples(self, round: int) -> bool:
        """Whether a round has a uniform draw, to learn from."""
        return round <= self.warmup or (round - self.warmup) % self.fit_every == 0

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there, t = present(probe, self._nodes.count), self._round + 1
        size = min(self._nodes.per_round, len(there))
        after = t > 1 and self.samples(t - 1)
        losses = probe(there.tolist()) if after or self.samples(t) else None
        if self.samples(t):
            return uniform(rng, there, size)
        embedding, alpha = self._embedding, self._alpha
        if losses is not None:  # the round before was sampled
            found = dict(zip(there.tolist(), losses.tolist(), strict=True))
            embedding, alpha = self._fit(*self._with(t, found)), np.ones_like(alpha)
        p = self._nodes.sizes / self._nodes.sizes.sum()
        return most_informative(embedding, self.loss_noise, alpha, p, there, size)

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        self._round += 1
        t = self._round
        if outcome.probed:
            if t > 1 and self.samples(t - 1):
                self._samples, self._sampled = self._with(t, outcome.probed)
                if not self.samples(t):
                    self._embedding = self._fit(self._samples, self._sampled)
                    self._alpha = np.ones(self._nodes.count)
            self._losses = _by_node(outcome.probed, self._nodes.count)
        if not self.samples(t):
            self._alpha[list(updates.node_ids)] *= self.annealing

    def _with(self, t: int, reported: Any) -> tuple[Matrix, NDArray[np.int64]]:
        """The samples, with the loss changes of round t - 1 and without those that are too old; and their rounds.

        A node that has not reported both losses has no change (NaN), which counts as its mean change.
        """
        with np.errstate(invalid="ignore"):  # losses may be infinite
            change = _by_node(reported, self._nodes.count) - self._losses
        rounds = np.append(self._sampled, t - 1)
        kept = rounds + self.history >= t - 1
        return np.vstack([self._samples, np.where(np.isfinite(change), change, np.nan)])[kept], rounds[kept]

    def _fit(self, samples: Matrix, rounds: NDArray[np.int64]) -> Matrix:
        """The embedding that fits the samples; `learn` asks for what `draw` has just computed."""
        key = (rounds.tobytes(), samples.tobytes())
        if self._last_fit is None or self._last_fit[0] != key:
            weights = self.forgetting ** (rounds[-1] - rounds).astype(np.float64)
            steps = self.fit_steps if rounds[-1] > self.warmup else self.first_fit_steps
            self._last_fit = (key, fitted(self._embedding, samples, weights, self.loss_noise, steps))
        found: Matrix = self._last_fit[1]
        return found


def _by_node(reported: Any, count: int) -> NDArray[np.float64]:
    losses = np.full(count, np.nan)
    losses[list(reported)] = list(reported.values())
    return losses
