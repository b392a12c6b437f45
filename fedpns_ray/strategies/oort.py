"""Oort (Lai et al. 2021): guided selection by statistical and system utility, with exploration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveInt

from fedpns_ray.core.interfaces import Nodes, Outcome, Probe, Selection, Updates
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.strategies.fedavg import by_probability, present

PREFERRED_SECONDS = Quantity("preferred_seconds", "preferred duration T", "s")


class OortSelection(Selection):
    """Exploits nodes of high utility and explores nodes not seen yet; slow nodes are penalised if there are devices.

    Algorithm 1 of the paper. Util(i) = (|B_i| sqrt(mean loss^2) + sqrt(0.1 log R / L(i))) x (T / t_i)^penalty if T <
    t_i, where L(i) is the round that last saw node i and R this one. Choices where paper and released code differ or
    are silent: a node reports its mean loss, used as the root of its mean squared loss; statistical utility is
    clipped at its 95th percentile and brought to 0 .. 1 before the bonus is added, as in the code; T is a percentile of
    the durations known so far; the pacer is the paper's, which raises T when utility falls (the code does so when it is
    flat within 10 %); unexplored nodes are drawn by speed, training and upload, or uniformly without devices. No node
    is blacklisted, and no more nodes are drawn than are waited for. Defaults are the paper's where it gives them; those
    of the released code changed from version to version.
    """

    name = "oort"
    quantities = (PREFERRED_SECONDS,)
    exploration: float = Field(0.9, ge=0, le=1)
    """epsilon, the fraction of the draw that explores in round 1."""
    exploration_decay: float = Field(0.98, gt=0, le=1)
    """The factor by which epsilon shrinks after each round."""
    exploration_floor: float = Field(0.2, ge=0, le=1)
    """The least epsilon."""
    penalty: NonNegativeFloat = 2.0
    """The exponent for nodes slower than T."""
    cutoff: float = Field(0.95, gt=0, le=1)
    """Nodes with this fraction of the last exploited node's utility may be exploited in its place."""
    pace: float = Field(30.0, gt=0, le=100)
    """The percentile of known durations at which T starts."""
    pace_step: NonNegativeFloat = 10.0
    """The step by which the pacer raises it when utility falls."""
    pace_window: PositiveInt = 20
    """Rounds over which the pacer sums utility."""
    _nodes: Nodes
    _round: int
    _pace: float
    _utility: NDArray[np.float64]
    _last: NDArray[np.int64]
    _seconds: NDArray[np.float64]
    _history: NDArray[np.float64]

    def begin(self, nodes: Nodes) -> None:
        self._nodes, self._round, self._pace = nodes, 0, self.pace
        self._utility, self._seconds = np.zeros(nodes.count), np.zeros(nodes.count)
        self._last, self._history = np.zeros(nodes.count, dtype=np.int64), np.zeros(0)

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        seen, unseen = there[self._last[there] > 0], there[self._last[there] == 0]
        k = min(self._nodes.per_round, len(there))
        epsilon = max(self.exploration * self.exploration_decay**self._round, self.exploration_floor)
        exploit = min(int(k * (1 - epsilon) + 1e-9), len(seen))
        exploit = max(exploit, k - len(unseen))
        chosen = self._exploited(rng, seen, exploit)
        return chosen + [int(unseen[j]) for j in by_probability(rng, self._speeds(probe)[unseen], k - exploit)]

    def _speeds(self, probe: Probe) -> NDArray[np.float64]:
        """The speeds of all nodes; equal without devices."""
        if self._nodes.devices is None:
            return np.ones(self._nodes.count)
        needs = probe.resources()
        return 1 / (needs.train + needs.upload)

    def _exploited(self, rng: np.random.Generator, seen: NDArray[np.int64], size: int) -> list[int]:
        """Nodes drawn by utility, among those close to the `size`-th highest."""
        if not size:
            return []
        utility = self.utilities(seen)
        near = np.flatnonzero(utility >= self.cutoff * np.sort(utility)[-size])
        return [int(seen[near[j]]) for j in by_probability(rng, utility[near], size)]

    def utilities(self, seen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Util(i) of nodes that took part before."""
        raw = self._utility[seen]
        clip = np.sort(raw)[min(int(len(raw) * 0.95), len(raw) - 1)]
        low, high = float(raw.min()), float(raw.max())
        scaled = (np.minimum(raw, clip) - low) / (high - low) if high > low else np.ones(len(raw))
        utility = scaled + np.sqrt(0.1 * math.log(self._round + 1) / self._last[seen])
        preferred = self.preferred_seconds()
        slow = np.maximum(self._seconds[seen] / preferred, 1.0) if preferred else np.ones(len(raw))
        return utility / slow**self.penalty

    def preferred_seconds(self) -> float:
        """T: a percentile of the durations known so far; 0 if none is known."""
        known = np.sort(self._seconds[self._last > 0])
        return float(known[min(int(len(known) * self._pace / 100), len(known) - 1)]) if len(known) else 0.0

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        """Update utilities; the pacer admits slower nodes when recent rounds brought less utility than those before."""
        self._round += 1
        at = list(updates.node_ids)
        gained = updates.sizes * np.nan_to_num(updates.losses, nan=0.0, posinf=0.0)
        self._utility[at], self._last[at] = gained, self._round
        if updates.seconds is not None:
            self._seconds[at] = updates.seconds
        window = self.pace_window
        self._history = np.append(self._history, gained.sum())[-2 * window :]
        if self._round % window == 0 and len(self._history) == 2 * window:
            before, now = self._history[:window].sum(), self._history[window:].sum()
            self._pace = min(self._pace + self.pace_step, 100.0) if before > now else self._pace

    def notes(self) -> dict[str, Any]:
        return {PREFERRED_SECONDS.key: self.preferred_seconds()} if self._nodes.devices else {}
