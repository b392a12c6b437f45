"""Shared by several methods: the server remembers each node's last update, or the last layer of it.

The memory is one float32 row per node and the matrix of all inner products, which only the rows of a round's nodes
change. Both are bounded, by `MOST_BYTES` and `MOST_NODES`; a run that would need more is refused before it starts,
since a node forgotten would silently change the method. Rows and products are saved with every checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import Nodes, Outcome, Rows, Selection, Updates
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.strategies.fedavg import uniform

MOST_BYTES = 2**30
"""The most memory that the rows of all nodes may take together."""
MOST_NODES = 5000
"""The most nodes: the inner products take 8 bytes per pair."""
CHUNK = 1 << 16
"""Parameters converted to float64 at a time."""

Matrix = NDArray[np.float64]


class RememberingSelection(Selection):
    """Keeps the last update of every node that has trained; a node without one has a row of zeros."""

    remembered: Literal["update", "last-layer"] = "update"
    """What is kept of each node's last update: all of it, or its last layer, for models too large to keep whole."""
    _nodes: Nodes
    _rows: Rows
    _known: NDArray[np.bool_]
    _products: Matrix

    def begin(self, nodes: Nodes) -> None:
        length = length_of(nodes, self.remembered, self.name)
        _refuse_excess(nodes, length, self.remembered)
        self._nodes = nodes
        self._rows = np.zeros((nodes.count, length), dtype=np.float32)
        self._known = np.zeros(nodes.count, dtype=bool)
        self._products = np.zeros((nodes.count, nodes.count))

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        at = list(updates.node_ids)
        if not at:
            return
        self._rows[at] = updates.of_parameters[:, -self._rows.shape[1] :]
        self._known[at] = True
        found = inner_products(self._rows[at], self._rows)
        self._products[at], self._products[:, at] = found, found.T

    def unknown_first(self, rng: np.random.Generator, among: NDArray[np.int64], size: int) -> list[int]:
        """`size` of these nodes: those whose update is not known yet, in the order of their ids, then any others."""
        fresh = among[~self._known[among]][:size]
        rest = among[self._known[among]]
        return [int(node) for node in fresh] + uniform(rng, rest, min(size - len(fresh), len(rest)))


def length_of(nodes: Nodes, remembered: str, part: str) -> int:
    """How many numbers at the end of an update are remembered."""
    if remembered == "update":
        return max(1, nodes.parameters)
    outputs, inputs = needed_last_layer(nodes, part)
    return outputs * inputs + outputs


def needed_last_layer(nodes: Nodes, part: str) -> tuple[int, int]:
    """Outputs and inputs of the model's last layer, for a part that requires one."""
    if nodes.last_layer is None:
        raise InputError("model", problem=f"must end in a linear layer with biases, which {part} looks at")
    return nodes.last_layer


def _refuse_excess(nodes: Nodes, length: int, remembered: str) -> None:
    hint = "remember the last layer only (remembered: last-layer)" if remembered == "update" else "take fewer nodes"
    if nodes.count > MOST_NODES:
        raise InputError("nodes", nodes.count, f"at most {MOST_NODES} updates are remembered")
    if 4 * length * nodes.count > MOST_BYTES:
        problem = f"of {nodes.count} nodes takes {4 * length * nodes.count / 2**30:.1f} GiB"
        allowed = f"at most {MOST_BYTES // 2**30} GiB is kept"
        raise InputError("remembered", Shown(remembered), allowed, hint, problem=problem)


def inner_products(some: Rows, rows: Rows) -> Matrix:
    """<some_i, rows_j> in float64. No BLAS: equal rows must have equal products, to the last bit.

    Otherwise the distance of two equal updates is the root of a rounding error, which decides what should be a tie.
    """
    found = np.zeros((len(some), len(rows)))
    for start in range(0, rows.shape[1], CHUNK):
        theirs = rows[:, start : start + CHUNK].astype(np.float64)
        for i, own in enumerate(some[:, start : start + CHUNK].astype(np.float64)):
            found[i] += np.einsum("k,jk->j", own, theirs)
    return found


def squared_distances(products: Matrix) -> Matrix:
    """||g_i - g_j||^2 = G_ii + G_jj - 2 G_ij of all pairs, from the inner products G; never below 0."""
    squares = np.diag(products)
    found = np.maximum(squares[:, None] + squares[None, :] - 2 * products, 0.0)
    np.fill_diagonal(found, 0.0)
    return found


def angles(products: Matrix) -> Matrix:
    """arccos(<g_i, g_j> / (||g_i|| ||g_j||)) of all pairs; 0 where a norm is 0."""
    norms = np.sqrt(np.diag(products))
    scale = norms[:, None] * norms[None, :]
    cosines = np.divide(products, scale, out=np.ones_like(products), where=scale > 0)
    found = np.arccos(np.clip(cosines, -1.0, 1.0))
    np.fill_diagonal(found, 0.0)
    return found


def ward_merges(features: Matrix) -> list[tuple[int, int]]:
    """The merges of Ward's method over the rows, nearest first; merge k makes cluster n + k.

    As in the released codes, a row of a distance matrix is a point whose coordinates are its distances to all nodes.
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    if len(features) < 2:
        return []
    return [(int(a), int(b)) for a, b in linkage(pdist(features), "ward")[:, :2]]


def members(merges: Sequence[tuple[int, int]], count: int) -> list[list[int]]:
    """The rows in each cluster: first the `count` single rows, then those that the merges make."""
    found = [[row] for row in range(count)]
    for a, b in merges:
        found.append(sorted(found[a] + found[b]))
    return found
