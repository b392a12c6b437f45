"""BN2 (Amiri et al. 2021), as Section V-D of the FedPNS paper runs it: the largest updates are aggregated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import PositiveInt

from fedpns_ray.errors import InputError
from fedpns_ray.strategies.fedavg import uniform
from fedpns_ray.strategies.parts import Nodes, Probe, Selection, Updates


class LargestNormSelection(Selection):
    """|M| nodes drawn uniformly train; the |S_t| with the largest ||g_i|| send their updates."""

    name = "largest-norm"
    candidates: PositiveInt = 20
    """|M|, nodes that train each round."""
    _nodes: Nodes

    def begin(self, nodes: Nodes) -> None:
        if not nodes.per_round <= self.candidates <= nodes.count:
            raise InputError(
                f"candidates: {self.candidates} is not allowed; "
                f"it must be between {nodes.per_round} (drawn a round) and {nodes.count} (nodes)"
            )
        self._nodes = nodes

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        return uniform(rng, np.arange(self._nodes.count), self.candidates)

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        descending = np.argsort(-updates.norms(), kind="stable")  # a tie goes to the lower node id
        return updates.subset(sorted(descending[: self._nodes.per_round].tolist()))
