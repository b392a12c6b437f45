"""Accuracy where labels are unequally frequent."""

from __future__ import annotations

import numpy as np

from fedpns_ray.core.metrics.metric import Confusion, Metric
from fedpns_ray.core.quantity import Quantity

BALANCED_ACCURACY = Quantity("balanced_accuracy", "balanced accuracy", "%", 100.0, "higher")


class BalancedAccuracyMetric(Metric):
    """The mean over labels of the accuracy on each; labels that the test set lacks do not count."""

    name = "balanced-accuracy"
    quantities = (BALANCED_ACCURACY,)

    def measure(self, confusion: Confusion) -> dict[str, float]:
        samples = confusion.sum(axis=1)
        there = samples > 0
        return {BALANCED_ACCURACY.key: float(np.mean(np.diag(confusion)[there] / samples[there]))}
