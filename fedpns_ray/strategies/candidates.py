"""Shared by several methods: many nodes train and report, few are asked for their updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from fedpns_ray.core.interfaces import Nodes, Probe, Selection, Updates
from fedpns_ray.errors import InputError
from fedpns_ray.strategies.fedavg import present, uniform


class CandidateSelection(Selection):
    """|M| nodes drawn uniformly train, and each reports the norm of its update; `sift` decides which are sent."""

    reports: ClassVar[int] = 1
    candidates: PositiveInt = 20
    """|M|, nodes that train each round."""
    _nodes: Nodes

    def trains(self, per_round: int) -> int:
        return self.candidates

    def begin(self, nodes: Nodes) -> None:
        if not nodes.per_round <= self.candidates <= nodes.count:
            allowed = f"it must be between {nodes.per_round} (drawn per round) and {nodes.count} (nodes)"
            raise InputError("candidates", self.candidates, allowed)
        self._nodes = nodes

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        return uniform(rng, present(probe, self._nodes.count), self.candidates)

    def size(self, updates: Updates) -> int:
        """How many are sent: |S_t|, or all that returned if those are fewer."""
        return min(self._nodes.per_round, len(updates))


def weighted_norms(updates: Updates) -> NDArray[np.float64]:
    """||psi_i delta_i|| with psi_i, the node's fraction of the samples of all nodes that returned.

    A norm that is not finite, of a node whose training diverged, is taken as 0.
    """
    return np.nan_to_num(updates.norms(), nan=0.0, posinf=0.0) * updates.sizes / updates.sizes.sum()


def largest(values: NDArray[np.float64], size: int) -> list[int]:
    """Positions of the largest values, in ascending order; a tie goes to the lower position."""
    return sorted(np.argsort(-values, kind="stable")[:size].tolist())
