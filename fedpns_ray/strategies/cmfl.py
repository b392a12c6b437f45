"""CMFL (Wang et al. 2019): a node withholds an update that points away from where the model is going."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.interfaces import Claim, Nodes, Outcome, Updates
from fedpns_ray.strategies.fedavg import RandomSelection


class RelevantSelection(RandomSelection):
    """Of the nodes drawn uniformly, those whose relevance e(u, u') reaches the threshold send their updates.

    e(u, u') is the fraction of parameters in which the update u has the sign of u', the last global update. The
    threshold falls as v / sqrt(t); replications of the paper start at 0.6 to 0.8, and the default here is 0.8. A
    constant threshold near one half, the value of chance, can withhold every update forever where nodes hold one label
    each. Until there has been a global update, all nodes send. In the paper all of K train in every round; here only
    the drawn nodes do. A drawn node is sent the model and u'.
    """

    name = "relevant"
    unbiased: ClassVar[Claim] = ""
    downloads: ClassVar[int] = 2
    relevance: float = Field(0.8, ge=0, le=1)
    """The threshold v of round 1: the least fraction of equal signs."""
    relevance_decay: Literal["none", "sqrt"] = "sqrt"
    """How the threshold falls with the round: not at all, or v / sqrt(t)."""
    _last: NDArray[np.float32]
    _round: int

    def begin(self, nodes: Nodes) -> None:
        super().begin(nodes)
        self._last, self._round = np.zeros(0, dtype=np.float32), 0

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        if not len(self._last):
            return updates
        threshold = self.relevance / (np.sqrt(self._round + 1) if self.relevance_decay == "sqrt" else 1)
        return updates.subset(np.flatnonzero(relevance(updates, self._last) >= threshold).tolist())

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        """A round in which no node sent leaves the last global update as it is."""
        self._round += 1
        if outcome.aggregated and outcome.step is not None:
            self._last = outcome.step


def relevance(updates: Updates, last: NDArray[np.float32]) -> NDArray[np.float64]:
    """e(u, u') = 1/N sum of I(sgn u_j = sgn u'_j) of every update; 0 has a sign of its own."""
    deltas = updates.of_parameters
    return (np.sign(deltas) == np.sign(last[: deltas.shape[1]])).mean(axis=1)
