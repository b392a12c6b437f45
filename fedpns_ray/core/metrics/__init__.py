"""Metrics: what is measured on the test set beside accuracy and loss, one metric per file."""

from fedpns_ray.core.metrics.balanced_accuracy import BalancedAccuracyMetric
from fedpns_ray.core.metrics.label_accuracy import LabelAccuracyMetric
from fedpns_ray.core.metrics.macro_f1 import MacroF1Metric
from fedpns_ray.core.metrics.metric import Confusion, Metric, confusion_of, measured

METRICS: dict[str, type[Metric]] = {
    metric.name: metric for metric in (BalancedAccuracyMetric, MacroF1Metric, LabelAccuracyMetric)
}
"""The built-in ones; a user-defined one is `package.module:MyMetric`."""

__all__ = ["METRICS", "Confusion", "Metric", "confusion_of", "measured"]
