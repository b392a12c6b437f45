"""Precision and recall in one number."""

from __future__ import annotations

import numpy as np

from fedpns_ray.core.metrics.metric import Confusion, Metric
from fedpns_ray.core.quantity import Quantity

MACRO_F1 = Quantity("macro_f1", "macro F1", "%", 100.0, "higher")


class MacroF1Metric(Metric):
    """The mean over labels of F1 = 2 TP / (2 TP + FP + FN); labels that occur nowhere do not count."""

    name = "macro-f1"
    quantities = (MACRO_F1,)

    def measure(self, confusion: Confusion) -> dict[str, float]:
        both = confusion.sum(axis=0) + confusion.sum(axis=1)  # 2 TP + FP + FN
        there = both > 0
        return {MACRO_F1.key: float(np.mean(2 * np.diag(confusion)[there] / both[there]))}
