"""How often each node met each fate, in summary.json: a list of numbers, or compressed for a huge population.

Above 10,000 nodes nobody reads the list, and most nodes were never drawn: 2 million of them took 48 MB of zeros as
JSON, and take a few kB compressed. Below, the list stays, for people and for other programs.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_LISTED = 10_000
COMPRESSED = "int32-zlib-base64"
"""Little-endian 32-bit integers, by zlib, in base64."""


def counts_of(nodes: Iterable[int], count: int) -> Any:
    """How often each of `count` nodes is among `nodes`, as JSON holds it."""
    times = np.bincount(np.fromiter(nodes, dtype=np.int64), minlength=count)
    if count <= MOST_LISTED:
        return times.tolist()
    return {COMPRESSED: base64.b64encode(zlib.compress(times.astype("<i4").tobytes())).decode()}


def read_counts(found: Any, count: int) -> NDArray[np.int64] | None:
    """The inverse, of either form; None if it is damaged. Never unpacks more than `count` numbers."""
    try:
        if isinstance(found, dict):
            packed = base64.b64decode(found[COMPRESSED], validate=True)
            found = np.frombuffer(zlib.decompressobj().decompress(packed, 4 * count + 1), dtype="<i4")
        numbers = np.asarray(found, dtype=np.int64)
    except (KeyError, TypeError, ValueError, OverflowError, binascii.Error, zlib.error):
        return None
    return numbers if numbers.shape == (count,) else None
