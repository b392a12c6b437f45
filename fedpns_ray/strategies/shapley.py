"""Selection by Shapley values: GreedyFed (Singhal et al. 2024) and S-FedAvg (Nagalapatti and Narayanam 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveInt

from fedpns_ray.core.interfaces import CheckLoss, Nodes, Probe, Selection, Updates, Vector, average
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.strategies.fedavg import by_probability, present, uniform

EVALUATIONS = Quantity("shapley_evaluations", "models evaluated for Shapley values")


class ShapleySelection(Selection):
    """Draws the nodes whose updates improved the model most, by their Shapley values on the server's check samples.

    The value of a set of updates is minus the loss of the model that they make, averaged by data size; that of no
    updates is minus the loss of the old model. `greedy` (GreedyFed) draws every node once, in the order of ids, and
    then the |S_t| of highest mean Shapley value. `softmax` (S-FedAvg) draws by softmax(phi), where phi starts at 1/|K|
    and becomes alpha phi + beta SV whenever a node is drawn. Shapley values are those of GTG-Shapley: marginal gains
    in random orders, each node leading in turn, cut off where little is left to gain.
    """

    name = "shapley"
    quantities = (EVALUATIONS,)
    rule: Literal["greedy", "softmax"] = "greedy"
    """How values become a draw: GreedyFed's, or S-FedAvg's."""
    retention: float = Field(0.75, ge=0, le=1)
    """softmax: alpha, how much of phi is kept."""
    gain: NonNegativeFloat = 0.25
    """softmax: beta, the weight of the new Shapley value."""
    appraisal_samples: PositiveInt = 128
    """Test samples that models are judged by in a round; the same ones for the whole round."""
    permutations: PositiveInt = 2
    """Random orders that each node leads, per round. |S_t| times this is the number of orders."""
    truncation: NonNegativeFloat = 1e-4
    """A gain that is left to be had, in loss, below which the rest of an order counts as 0; and so with the round's."""
    _nodes: Nodes
    _draws: NDArray[np.int64]
    _values: NDArray[np.float64]
    _evaluations: int

    def begin(self, nodes: Nodes) -> None:
        start = 1 / nodes.count if self.rule == "softmax" else 0.0
        self._nodes, self._values, self._evaluations = nodes, np.full(nodes.count, start), 0
        self._draws = np.zeros(nodes.count, dtype=np.int64)

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        size = min(self._nodes.per_round, len(there))
        values = self._values[there]
        if self.rule == "softmax":
            return [int(there[k]) for k in by_probability(rng, np.exp(values - values.max()), size)]
        fresh = there[self._draws[there] == 0][:size]
        if len(fresh):
            return [int(node) for node in fresh] + uniform(rng, np.setdiff1d(there, fresh), size - len(fresh))
        shuffled = rng.permutation(len(there))  # ties are broken at random
        return [int(there[k]) for k in shuffled[np.argsort(-values[shuffled], kind="stable")[:size]]]

    def appraise(self, rng: np.random.Generator, weights: Vector, updates: Updates, check_loss: CheckLoss) -> None:
        self._evaluations = 0
        if not len(updates):
            return

        def value(kept: frozenset[int]) -> float:
            self._evaluations += 1
            at = sorted(kept)
            sizes = updates.sizes[at].astype(np.float64)
            model = average(weights, updates.deltas[at], sizes / sizes.sum()) if at else weights
            return -check_loss(model, samples=self.appraisal_samples, first=False)

        found = gtg_shapley(rng, len(updates), value, self.permutations, self.truncation)
        nodes = list(updates.node_ids)
        self._draws[nodes] += 1
        if self.rule == "softmax":
            self._values[nodes] = self.retention * self._values[nodes] + self.gain * found
        else:
            self._values[nodes] += (found - self._values[nodes]) / self._draws[nodes]

    def notes(self) -> dict[str, Any]:
        return {EVALUATIONS.key: self._evaluations}


def gtg_shapley(
    rng: np.random.Generator, count: int, value: Callable[[frozenset[int]], float], repeats: int, truncation: float
) -> NDArray[np.float64]:
    """The mean marginal gain of each player over random orders; every player leads `repeats` of them.

    If all players together gain less than `truncation`, nobody gains anything; in an order, players that come when less
    than that is left to be gained add nothing. No set is evaluated twice.
    """
    known: dict[frozenset[int], float] = {}

    def of(players: frozenset[int]) -> float:
        if players not in known:
            known[players] = value(players)
        return known[players]

    nobody, everybody = of(frozenset()), of(frozenset(range(count)))
    gains = np.zeros(count)
    if not abs(everybody - nobody) >= truncation:  # a value may be NaN
        return gains
    for leader in [*range(count)] * repeats:
        before, there = nobody, frozenset[int]()
        for player in (leader, *rng.permutation(np.delete(np.arange(count), leader)).tolist()):
            there |= {player}
            after = before if abs(everybody - before) < truncation else of(there)
            gains[player] += after - before
            before = after
    return gains / (count * repeats)
