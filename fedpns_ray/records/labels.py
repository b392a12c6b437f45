"""The labels on each node, in summary.json: what a report shows of the data, without loading them again."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data import Population
from fedpns_ray.records.counts import COMPRESSED

LABELS, NODE_LABELS = "labels", "node_labels"
"""Samples of each label, on all nodes and node by node."""
MOST_NODES, MOST_CELLS = 1000, 1_000_000
"""Node by node only for so many nodes, and nodes times labels: of more, no picture can be drawn."""


def labels_of(population: Population) -> dict[str, Any]:
    """What a summary says about labels: null for a regression, and no single nodes of a huge population."""
    if population.samples.task == "regression":
        return {LABELS: None}
    counts = population.histogram
    found: dict[str, Any] = {LABELS: counts.sum(axis=0).tolist()}
    if population.count > MOST_NODES or counts.size > MOST_CELLS:
        return found
    content = base64.b64encode(zlib.compress(counts.astype("<i4").tobytes())).decode()
    return found | {NODE_LABELS: {"labels": counts.shape[1], COMPRESSED: content}}


def has_no_labels(population: Mapping[str, Any]) -> bool:
    """Whether a summary says that there are none; older ones say nothing."""
    return LABELS in population and population[LABELS] is None


def read_labels(population: Mapping[str, Any], nodes: int) -> NDArray[np.int64] | None:
    """The number of samples of each label on each node; None if a summary does not say, or is damaged."""
    found = population.get(NODE_LABELS)
    try:
        count = int(found["labels"])  # type: ignore[index]
        if not 0 < nodes * count <= MOST_CELLS:
            return None
        content = base64.b64decode(found[COMPRESSED], validate=True)  # type: ignore[index]
        numbers = np.frombuffer(zlib.decompressobj().decompress(content, 4 * nodes * count + 1), dtype="<i4")
        rows = numbers.reshape(nodes, count).astype(np.int64)
    except (KeyError, TypeError, ValueError, OverflowError, binascii.Error, zlib.error):
        return None
    return rows if (rows >= 0).all() and rows.sum(axis=1).all() else None
