"""Which labels are learned."""

from __future__ import annotations

from fedpns_ray.core.metrics.metric import Confusion, Metric
from fedpns_ray.core.quantity import Quantity

LABEL_ACCURACY = Quantity("label_accuracy", "accuracy by label", "%", 100.0, "higher", per="label")
LOWEST_LABEL_ACCURACY = Quantity("lowest_label_accuracy", "lowest accuracy of a label", "%", 100.0, "higher")


class LabelAccuracyMetric(Metric):
    """The accuracy on each label, and the lowest of them; null for a label that the test set lacks."""

    name = "label-accuracy"
    quantities = (LABEL_ACCURACY, LOWEST_LABEL_ACCURACY)

    def measure(self, confusion: Confusion) -> dict[str, float | list[float | None]]:
        rows = [(int(row[label]), int(row.sum())) for label, row in enumerate(confusion)]
        found = [correct / samples if samples else None for correct, samples in rows]
        lowest = min(accuracy for accuracy in found if accuracy is not None)
        return {LABEL_ACCURACY.key: found, LOWEST_LABEL_ACCURACY.key: lowest}
