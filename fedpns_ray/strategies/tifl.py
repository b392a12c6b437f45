"""TiFL (Chai et al. 2020): tiers of nodes that are equally fast; a round draws from one tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from fedpns_ray.core.interfaces import Nodes, Outcome, Probe, Selection, Updates
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.strategies.fedavg import present, uniform

TIER = Quantity("tier", "tier of the drawn nodes (0 is the fastest)")


class TierSelection(Selection):
    """Draws a tier of nodes by latency, and |S_t| nodes uniformly in it; tiers that learn badly first (needs devices).

    Algorithm 2 of the paper: a tier is drawn by its probability if it has credits left, and pays one. Every so many
    rounds all nodes report how well the model does on their data; if it does no better than before on the last drawn
    tier, the tier probabilities are set anew by rank, the worst tier first: n, n-1, … 1 over n (n + 1) / 2. Nodes
    report losses here, not accuracies, which is counted. When no tier has credits left, all have theirs again.
    """

    name = "tifl"
    quantities = (TIER,)
    tiers: PositiveInt = 5
    """T, the number of tiers (no more than nodes)."""
    credits: PositiveInt = 40
    """Rounds in which each tier may be drawn."""
    tier_interval: int = Field(10, ge=1)
    """I, rounds between two looks at the tiers."""
    _nodes: Nodes
    _tier_of: NDArray[np.int64]
    _credits: NDArray[np.int64]
    _p: NDArray[np.float64]
    _before: NDArray[np.float64]
    _round: int
    _tier: int

    def begin(self, nodes: Nodes) -> None:
        devices = nodes.needed_devices(self.name)
        count = min(self.tiers, nodes.count)
        latency = devices.samples / devices.speed + devices.payload / devices.uplink
        self._nodes, self._tier_of = nodes, tiers_of(latency, count)
        self._credits, self._p = np.full(count, self.credits), np.full(count, 1 / count)
        self._before, self._round, self._tier = np.full(count, np.nan), 0, 0

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        p = self._p
        if self._round % self.tier_interval == 0:
            losses = probe(there.tolist())
            p = self._changed(dict(zip(there.tolist(), losses.tolist(), strict=True)))[1]
        open_ = np.isin(np.arange(len(p)), self._tier_of[there]) & (self._credits > 0)
        if not open_.any():
            open_ = np.isin(np.arange(len(p)), self._tier_of[there])
        mass = np.where(open_, p, 0.0) if p[open_].any() else open_.astype(np.float64)
        tier = int(rng.choice(len(p), p=mass / mass.sum()))
        own = there[self._tier_of[there] == tier]
        return uniform(rng, own, min(self._nodes.per_round, len(own)))

    def _changed(self, losses: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The mean loss of each tier, and the probabilities that follow; both as they were where nothing is known."""
        sums, counts = np.zeros(len(self._p)), np.zeros(len(self._p))
        for node, loss in losses.items():
            sums[self._tier_of[node]] += loss
            counts[self._tier_of[node]] += 1
        now = np.divide(sums, counts, out=self._before.copy(), where=counts > 0)
        known = np.isfinite(now).all() and np.isfinite(self._before).all()
        if known and now[self._tier] >= self._before[self._tier]:
            return now, by_rank(now, self._credits)
        return now, self._p

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        """A round from which nobody returned costs no credit."""
        self._round += 1
        if outcome.probed:
            self._before, self._p = self._changed(outcome.probed)
        if len(updates):
            self._tier = int(self._tier_of[updates.node_ids[0]])
            if not self._credits.any():
                self._credits[:] = self.credits
            self._credits[self._tier] = max(0, self._credits[self._tier] - 1)

    def notes(self) -> dict[str, Any]:
        return {TIER.key: self._tier}


def tiers_of(latency: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The tier of every node: equally many nodes in each, or one more in the first ones; the fastest are in tier 0."""
    tiers = np.zeros(len(latency), dtype=np.int64)
    for tier, nodes in enumerate(np.array_split(np.argsort(latency, kind="stable"), count)):
        tiers[nodes] = tier
    return tiers


def by_rank(losses: NDArray[np.float64], credits: NDArray[np.int64]) -> NDArray[np.float64]:
    """ChangeProbs: (n - rank) / (n (n + 1) / 2) for the n tiers with credits, where rank 0 has the highest loss."""
    order = [int(tier) for tier in np.argsort(-losses, kind="stable") if credits[tier] > 0]
    n, p = len(order), np.zeros(len(losses))
    for rank, tier in enumerate(order):
        p[tier] = (n - rank) / (n * (n + 1) / 2)
    return p
