"""Metrics: what is measured beside accuracy and loss, on the test set or on the data of nodes; one metric per file."""

from fedpns_ray.core.metrics.balanced_accuracy import BalancedAccuracyMetric
from fedpns_ray.core.metrics.label_accuracy import LabelAccuracyMetric
from fedpns_ray.core.metrics.macro_f1 import MacroF1Metric
from fedpns_ray.core.metrics.metric import (
    MOST_TESTED,
    NODES,
    TEST_SET,
    Confusion,
    Metric,
    NodeMetric,
    confusion_of,
    empty_confusion,
    measured,
)
from fedpns_ray.core.metrics.node_fairness import NodeFairnessMetric

METRICS: dict[str, type[Metric]] = {
    metric.name: metric for metric in (BalancedAccuracyMetric, MacroF1Metric, LabelAccuracyMetric, NodeFairnessMetric)
}
"""The built-in ones; a user-defined one is `package.module:MyMetric`."""

__all__ = [
    "METRICS", "MOST_TESTED", "NODES", "TEST_SET", "Confusion", "Metric", "NodeMetric", "confusion_of",
    "empty_confusion", "measured",
]  # fmt: skip
