"""Local optimisers: how a node steps. One rule per file, and what is needed to write another one."""

from fedpns_ray.core.optimizers.interfaces import Optimizer, Step

__all__ = ["Optimizer", "Step"]
