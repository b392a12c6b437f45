"""What a metric is, and the confusion matrix that all of them are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import Part
from fedpns_ray.core.user_code import refused

Confusion = NDArray[np.int64]
"""[i, j]: how many test samples of label i were predicted to be j. Whole numbers, so that their sum over chunks is
exact and the same in every layout."""

MOST_CLASSES = 1000
"""With more, the matrix would take more memory than most models."""


MOST_TESTED = 1000
"""Nodes on whose own data a model is tested, at most; of more, as many that are evenly spaced."""
TEST_SET, NODES = "test set", "nodes"


class Metric(Part):
    """What is measured on the test set beside accuracy and loss, whenever that is tested.

    It declares its `quantities`, and returns their values by key.
    """

    of: ClassVar[str] = TEST_SET
    """What it is measured on."""
    required: ClassVar[tuple[str, ...]] = ("measure",)

    def measure(self, confusion: Any) -> dict[str, Any]:
        """`confusion`: a `Confusion`."""
        raise NotImplementedError


class NodeMetric(Metric):
    """What is measured on the data of nodes: `measure` is given the accuracy of the model on that of each node.

    It costs a pass over the data of all nodes (of at most 1,000) with every test.
    """

    of: ClassVar[str] = NODES
    required: ClassVar[tuple[str, ...]] = ("measure",)

    def measure(self, accuracies: Any) -> dict[str, Any]:
        """`accuracies`: a vector of float64, in the order of node ids."""
        raise NotImplementedError


def measured(metrics: Iterable[Metric], seen: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all quantities that metrics declare, by key; a metric that returns another key is refused.

    `seen`: the confusion matrix of the test set, and the accuracies of nodes.
    """
    found: dict[str, Any] = {}
    for metric in metrics:
        own, declared = metric.measure(seen[metric.of]), {quantity.key: quantity for quantity in metric.quantities}
        if not isinstance(own, dict) or set(own) != set(declared):
            wanted = f"it must return a dict with the keys {', '.join(sorted(declared))}"
            raise refused(metric.measure, f"the metric returned {own!r:.100}; {wanted}")
        for key, value in own.items():
            one = declared[key].per == "round"
            if not (_is_number(value) if one else isinstance(value, (list, tuple)) and all(map(_is_number, value))):
                wanted = "it must be a number, or None" if one else "it must be a list of numbers"
                raise refused(metric.measure, f"the metric returned {value!r:.100} for {key}; {wanted}")
            found[key] = _plain(value) if one else [_plain(number) for number in value]
    return found


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, Real)


def _plain(number: Any) -> Any:
    """As JSON has it: numpy's numbers are not, although they count as numbers."""
    return number.item() if isinstance(number, np.generic) else number


def confusion_of(labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> Confusion:
    """The matrix of some samples, or of all their positions."""
    cells = labels.reshape(-1) * classes + predicted.reshape(-1)
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def empty_confusion(classes: int) -> Confusion:
    return np.zeros((classes, classes), dtype=np.int64)
