"""The server's own step: what its optimiser makes of the aggregated model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpns_ray.core.interfaces import Outcome, ServerOptimizer, Vector
from fedpns_ray.core.user_code import refused


def served(server: ServerOptimizer, weights: Vector, outcome: Outcome, buffers: int = 0) -> tuple[Outcome, str]:
    """The outcome with the model that the server moves to; and why the round has diverged, if it has.

    A round that has diverged leaves the state of the server as it was. The last `buffers` numbers are averages of what
    nodes have seen, not parameters: no optimiser moves them.
    """
    before = {key: value.copy() for key, value in server.state_dict().items()}
    parameters = len(weights) - buffers
    aggregated = outcome.weights[:parameters] if buffers else outcome.weights
    with np.errstate(over="ignore", invalid="ignore"):
        moved = server.move(weights[:parameters] if buffers else weights, aggregated)
        if moved is aggregated:
            return outcome, ""
        moved = np.asarray(moved, dtype=np.float32)
    if moved.shape != aggregated.shape:
        raise refused(server.move, f"the model has the shape {moved.shape}; it must be {aggregated.shape}")
    moved = np.concatenate([moved, outcome.weights[parameters:]]) if buffers else moved
    if not np.isfinite(moved).all():
        server.load_state_dict(before)
        return outcome, "the server's step is not finite"
    return replace(outcome, weights=moved), ""
