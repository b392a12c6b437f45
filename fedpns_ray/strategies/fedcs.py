"""FedCS (Nishio and Yonetani 2019): the most nodes that can train and upload before a deadline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveInt

from fedpns_ray.core.interfaces import Nodes, Probe, Selection
from fedpns_ray.errors import InputError
from fedpns_ray.strategies.fedavg import present, uniform


class DeadlineSelection(Selection):
    """Nodes drawn uniformly report what they need; the paper's greedy algorithm takes as many as fit (needs devices).

    Uploads are planned one after another, as in the paper; in simulated time they happen in parallel, so what fits the
    plan fits the round. Reports of resources are not counted as traffic. The times to distribute the model, to select
    and to aggregate are taken as 0. How many nodes train follows from the deadline, not from |S_t|.
    """

    name = "deadline"
    covers = False
    choices: PositiveInt = 20
    """Nodes that are asked each round."""
    deadline: NonNegativeFloat = 0.0
    """T_round, the seconds that a round may take; 0 means as long as |S_t| median nodes need."""
    _nodes: Nodes
    _deadline: float

    def trains(self, per_round: int) -> int:
        return self.choices

    def begin(self, nodes: Nodes) -> None:
        devices = nodes.needed_devices(self.name)
        if self.choices > nodes.count:
            raise InputError("choices", self.choices, f"there are {nodes.count} nodes")
        train, upload = devices.samples / devices.speed, devices.payload / devices.uplink
        least = float((train + upload).min())
        self._deadline = self.deadline or float(np.median(train) + nodes.per_round * np.median(upload))
        if self._deadline <= least:
            raise InputError("deadline", self.deadline, f"the fastest node needs {least:.3g} s")
        self._nodes = nodes

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        asked = sorted(uniform(rng, present(probe, self._nodes.count), self.choices))
        needs = probe.resources()
        return [asked[k] for k in greedy(needs.train[asked], needs.upload[asked], self._deadline)]


def greedy(train: NDArray[np.float64], upload: NDArray[np.float64], deadline: float) -> list[int]:
    """The paper's client selection: always the node that adds the least time, kept if the deadline is still met.

    A node that finishes training at t_UD and uploads after the nodes before it, which finish at Theta, adds t_UL +
    max(0, t_UD - Theta). A tie goes to the lower position.
    """
    left, kept, elapsed = list(range(len(train))), [], 0.0
    while left:
        added = upload[left] + np.maximum(0.0, train[left] - elapsed)
        nearest = int(np.argmin(added))
        node = left.pop(nearest)
        if elapsed + added[nearest] < deadline:
            elapsed += float(added[nearest])
            kept.append(node)
    return kept
