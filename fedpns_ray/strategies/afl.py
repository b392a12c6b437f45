"""Active Federated Learning (Goetz et al. 2019): nodes are drawn by a softmax of how much their data would teach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat

from fedpns_ray.core.interfaces import Nodes, Outcome, Probe, Selection, Updates
from fedpns_ray.strategies.fedavg import by_probability, present, uniform


class ActiveSelection(Selection):
    """Draws by p_k proportional to exp(alpha2 v_k), the lowest valuations left out, and a few nodes uniformly.

    Algorithm 1 of the paper: v_k = sum of losses / sqrt(n_k) = sqrt(n_k) x mean loss of the model that node k was last
    sent. The alpha1 |K| lowest valuations are set to minus infinity; (1 - alpha3) |S_t| nodes are drawn by p, the
    others uniformly among those not drawn. A node that has no valuation is asked for its loss before the draw (all
    nodes in round 1, as in FedCor's code), which is counted.
    """

    name = "afl"
    alpha1: float = Field(0.75, ge=0, lt=1)
    """The fraction of nodes, those of lowest valuation, that the softmax leaves out."""
    alpha2: NonNegativeFloat = 0.01
    """How much valuations matter: 0 not at all."""
    alpha3: float = Field(0.1, ge=0, le=1)
    """The fraction of the draw that is uniform."""
    valuation: Literal["received", "training"] = "received"
    """A drawn node's loss: that of the model it receives (the paper; one forward pass), or the mean of its steps."""
    _nodes: Nodes
    _values: NDArray[np.float64]

    def begin(self, nodes: Nodes) -> None:
        self._nodes, self._values = nodes, np.full(nodes.count, np.nan)

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        values = self._values.copy()
        strange = there[np.isnan(values[there])]
        if len(strange):
            values[strange] = self._valued(strange, probe(strange.tolist()))
        size = min(self._nodes.per_round, len(there))
        p = probabilities(values[there], self.alpha1, self.alpha2)
        active = by_probability(rng, p, int((1 - self.alpha3) * size + 1e-9))
        drawn = there[active].tolist() + uniform(rng, np.delete(there, active), size - len(active))
        if self.valuation == "received" and (heard := [node for node in drawn if node not in set(strange.tolist())]):
            probe(heard)
        return drawn

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        if outcome.probed:
            asked = np.array(list(outcome.probed))
            self._values[asked] = self._valued(asked, np.array(list(outcome.probed.values())))
        if self.valuation == "training":
            trained = np.array(updates.node_ids, dtype=np.int64)
            self._values[trained] = self._valued(trained, updates.losses)

    def _valued(self, nodes: NDArray[np.int64], losses: NDArray[np.float64]) -> NDArray[np.float64]:
        """v_k = sqrt(n_k) x mean loss; a loss that is not finite counts as 0."""
        return np.sqrt(self._nodes.sizes[nodes]) * np.nan_to_num(losses, nan=0.0, posinf=0.0, neginf=0.0)


def probabilities(values: NDArray[np.float64], alpha1: float, alpha2: float) -> NDArray[np.float64]:
    """The softmax of alpha2 v over all but the int(alpha1 n) lowest valuations; of equal ones, lower ids go."""
    kept = np.ones(len(values), dtype=bool)
    kept[np.argsort(values, kind="stable")[: int(alpha1 * len(values) + 1e-9)]] = False
    p = np.where(kept, np.exp(alpha2 * (values - values.max(initial=-np.inf, where=kept))), 0.0)
    return p / p.sum() if kept.any() else p
