"""How evenly a model serves the nodes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.metrics.metric import NodeMetric
from fedpns_ray.core.quantity import Quantity

NODE_ACCURACY = Quantity("node_accuracy", "mean accuracy of nodes", "%", 100.0, "higher")
WORST_NODES = Quantity("worst_nodes_accuracy", "accuracy of the worst 10 % of nodes", "%", 100.0, "higher")
NODE_SPREAD = Quantity("node_accuracy_std", "standard deviation of nodes' accuracy", "%", 100.0, "lower")


class NodeFairnessMetric(NodeMetric):
    """The accuracy on each node's own data: its mean over nodes, over the worst tenth of them, and its spread.

    Nodes weigh the same, whatever their size. They have trained on these data, if they were ever drawn: it shows whom
    the model serves, not how well it generalises.
    """

    name = "node-fairness"
    quantities = (NODE_ACCURACY, WORST_NODES, NODE_SPREAD)

    def measure(self, accuracies: NDArray[np.float64]) -> dict[str, float]:
        worst = np.sort(accuracies)[: math.ceil(len(accuracies) / 10)]
        return {
            NODE_ACCURACY.key: float(accuracies.mean()),
            WORST_NODES.key: float(worst.mean()),
            NODE_SPREAD.key: float(accuracies.std()),
        }
