"""A few of many nodes, always the same ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def evenly_spaced(count: int, most: int) -> NDArray[np.int64]:
    """At most so many nodes out of `count`, the first and the last among them."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).round().astype(np.int64)
