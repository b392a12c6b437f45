"""Vanilla FedAvg (McMahan et al. 2017), as the FedPNS paper's footnote to (5) has it: all nodes count."""

from __future__ import annotations

from fedpns_ray.core.interfaces import Aggregation, CheckLoss, Nodes, Outcome, Updates, Vector, average


class AllNodesAggregation(Aggregation):
    """w = sum over S_t of psi_i w_i + sum over the others of psi_i w, with psi_i = D_i over the samples of all of K.

    The footnote writes updates where models are meant. A node that was not drawn, or did not return, contributes
    the old model. So w moves by the sum of psi_i delta_i over those that returned: with equal nodes, c times the mean.
    """

    name = "all-nodes"
    _samples: int

    def begin(self, nodes: Nodes) -> None:
        self._samples = int(nodes.sizes.sum())

    def combine(self, weights: Vector, updates: Updates, check_loss: CheckLoss) -> Outcome:
        return Outcome(average(weights, updates.deltas, updates.sizes / self._samples), aggregated=updates.node_ids)
