"""Power-of-Choice (Cho et al. 2020): of d candidates, those with the highest local loss train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from fedpns_ray.core.interfaces import Nodes, Outcome, Probe, Selection, Updates
from fedpns_ray.errors import InputError
from fedpns_ray.strategies.fedavg import by_probability, present


class PowerOfChoiceSelection(Selection):
    """d candidates drawn without replacement by data size; the |S_t| with the highest F_i(w) train.

    pow-d asks the candidates for their loss on all their samples, cpow-d on a mini-batch, rpow-d not at all: it takes
    the mean loss of a node's last local steps, and infinity for a node that has not trained yet. Ties are broken at
    random.
    """

    name = "power-of-choice"
    choices: PositiveInt = 20
    """d, nodes that are asked each round."""
    variant: Literal["pow-d", "cpow-d", "rpow-d"] = "pow-d"
    """How the losses are obtained."""
    probe_samples: PositiveInt = 20
    """cpow-d: the number of samples in a mini-batch."""
    _nodes: Nodes
    _losses: NDArray[np.float64]

    def begin(self, nodes: Nodes) -> None:
        if not nodes.per_round <= self.choices <= nodes.count:
            allowed = f"it must be between {nodes.per_round} (drawn per round) and {nodes.count} (nodes)"
            raise InputError("choices", self.choices, allowed)
        self._nodes, self._losses = nodes, np.full(nodes.count, np.inf)

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        drawn = by_probability(rng, self._nodes.sizes[there].astype(np.float64), self.choices)
        asked = there[rng.permutation(drawn)].tolist()
        if self.variant == "rpow-d":
            losses = self._losses[asked]
        else:
            losses = probe(asked, self.probe_samples if self.variant == "cpow-d" else None)
        highest = np.argsort(-losses, kind="stable")[: self._nodes.per_round]
        return [asked[k] for k in highest]

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        self._losses[list(updates.node_ids)] = updates.losses
