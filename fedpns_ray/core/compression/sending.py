"""Where nodes train: every update becomes a message, and what the server reads from it takes the update's place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedpns_ray.core.compression.interfaces import FLOAT, Compression, Tensors
from fedpns_ray.core.compression.none import NoCompression
from fedpns_ray.core.interfaces import Rows, Updates, Vector
from fedpns_ray.core.user_code import refused


def compressed(compression: Compression, kept: Rows, updates: Updates, tensors: Tensors) -> tuple[Updates, Rows]:
    """The updates as the server reads them, with the bytes of each message; and what each node keeps, a row each.

    Averaged buffers are sent as they are. An update that is not finite is left out of the round anyway: it counts as a
    message, and its node keeps what it had.
    """
    if isinstance(compression, NoCompression):
        return updates, kept
    parameters = updates.of_parameters.shape[1]
    deltas, after = updates.deltas.copy(), kept.copy()
    lengths = np.full(len(updates), compression.expected_bytes(tensors), dtype=np.int64)
    for k in np.flatnonzero(np.isfinite(updates.deltas).all(axis=1)):
        before = kept[k].reshape(compression.keeps, parameters).copy()
        with np.errstate(over="ignore", invalid="ignore"):
            message, rows = _encoded(compression, updates.of_parameters[k].copy(), before, tensors)
            deltas[k, :parameters] = _decoded(compression, message, parameters, tensors)
        after[k], lengths[k] = rows.reshape(-1), len(message)
    return replace(updates, deltas=deltas, message_bytes=lengths + FLOAT * updates.buffers), after


def _encoded(compression: Compression, update: Vector, kept: Rows, tensors: Tensors) -> tuple[bytes, Rows]:
    found: Any = compression.encode(update, kept, tensors)
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], bytes):
        raise refused(compression.encode, f"it returned {found!r:.60}; it must return bytes, and what the node keeps")
    rows = np.asarray(found[1])
    if rows.shape != kept.shape or rows.dtype.kind != "f":
        problem = f"the node keeps an array of {rows.dtype} of shape {rows.shape}; it must be float32 of {kept.shape}"
        raise refused(compression.encode, problem)
    return found[0], rows


def _decoded(compression: Compression, message: bytes, parameters: int, tensors: Tensors) -> Vector:
    found = np.asarray(compression.decode(message, tensors))
    if found.shape != (parameters,) or found.dtype.kind != "f":
        problem = f"it returned an array of {found.dtype} of shape {found.shape}; it must be float32 of ({parameters},)"
        raise refused(compression.decode, problem)
    return found
