"""BN2, BC and BC-BN2 (Amiri et al. 2021): scheduling by update norm, by channel, or by both.

BN2 is as Section V-D of the FedPNS paper runs it. The number of bits that a scheduled node can send is not modelled:
every update is sent in full, and a poor channel makes it late instead of coarse. So their BN2-C, which ranks by the
norm of what the channel leaves of an update, would be BN2 here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpns_ray.core.interfaces import Nodes, Probe, Selection, Updates
from fedpns_ray.errors import InputError
from fedpns_ray.strategies.candidates import CandidateSelection, largest
from fedpns_ray.strategies.fedavg import present


class LargestNormSelection(CandidateSelection):
    """|M| nodes drawn uniformly train; the |S_t| with the largest ||g_i|| send their updates."""

    name = "largest-norm"

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        return updates.subset(largest(updates.norms(), self._nodes.per_round))


class BestChannelSelection(Selection):
    """The |S_t| nodes with the largest channel gain |h_i|^2 of this round train and send (needs devices).

    All channels come from one distribution, so every node gets its turn: as in the paper, only the fading counts,
    not the node's own uplink.
    """

    name = "best-channel"
    _nodes: Nodes

    def begin(self, nodes: Nodes) -> None:
        _refuse_constant(nodes, self.name)
        self._nodes = nodes

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        return [int(there[k]) for k in largest(probe.resources().gain[there], self._nodes.per_round)]


class BestChannelLargestNormSelection(CandidateSelection):
    """Of the K_c nodes with the best channels, the |S_t| with the largest ||g_i|| send their updates (needs devices).

    K_c is `candidates`. In the paper every node trains, but only those K_c can be scheduled; here only they train.
    """

    name = "best-channel-largest-norm"

    def begin(self, nodes: Nodes) -> None:
        _refuse_constant(nodes, self.name)
        super().begin(nodes)

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        there = present(probe, self._nodes.count)
        return [int(there[k]) for k in largest(probe.resources().gain[there], self.candidates)]

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        return updates.subset(largest(updates.norms(), self._nodes.per_round))


def _refuse_constant(nodes: Nodes, part: str) -> None:
    if not nodes.needed_devices(part).fading:
        raise InputError("device_fading", "none", f"{part} chooses by how channels fade")
