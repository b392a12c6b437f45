"""Published methods, one per file, and what is needed to write another one."""

from fedpns_ray.core.interfaces import (
    Aggregation,
    CheckLoss,
    Nodes,
    Objective,
    Outcome,
    Part,
    Probe,
    Selection,
    ServerOptimizer,
    Strategy,
    Updates,
    Vector,
    average,
)
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.strategies.preset import Preset

__all__ = [
    "Aggregation", "CheckLoss", "Nodes", "Objective", "Outcome", "Part", "Preset", "Probe", "Quantity", "Selection",
    "ServerOptimizer", "Strategy", "Updates", "Vector", "average",
]  # fmt: skip
