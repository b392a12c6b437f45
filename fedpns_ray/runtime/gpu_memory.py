"""Whether a worker fits into its share of a GPU, found out before it trains."""

from __future__ import annotations

import math

import ray
import torch

from fedpns_ray.core.fused import FusedWorker
from fedpns_ray.core.gpu_memory import GpuNeeds
from fedpns_ray.core.training import Worker
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.runtime.memory import gigabytes

STEPS = 10_000
"""Ray shares a GPU out in so many parts."""


def refuse_beyond_gpu(worker: Worker | FusedWorker) -> None:
    """An InputError with the numbers if this process trains on a GPU that is too small for it."""
    if worker.device == "cuda":
        refuse_beyond(worker.gpu_needs(), torch.cuda.get_device_properties(0).total_memory, gpu_share())


def gpu_share() -> float:
    """The share of a GPU that Ray has given to this process; 1 outside of Ray, and with several GPUs."""
    assigned = ray.get_runtime_context().get_assigned_resources() if ray.is_initialized() else {}
    return min(1.0, assigned.get("GPU") or 1.0)


def refuse_beyond(need: GpuNeeds, memory: float, share: float) -> None:
    """An InputError if a worker needs more than its share of a GPU with so many bytes."""
    if need.total <= share * memory:
        return
    parts = f"context {gigabytes(need.context)}, data {gigabytes(need.data)}, " + (
        f"nodes that train together {gigabytes(need.rows)}, updates {gigabytes(need.updates)}"
    )
    fitting = STEPS // math.ceil(need.total / memory * STEPS)
    hint = "use a GPU with more memory, a smaller model or batch_size, or gpus_per_actor 0"
    if fitting:
        hint = f"at most {fitting} fit: --gpus-per-actor {STEPS // fitting / STEPS:g}, in a study gpus_per_trial"
    there = f"{share:g} of a GPU with {gigabytes(memory)} is {gigabytes(share * memory)}"
    raise InputError("gpus", Shown(f"{share:g}"), there, hint, problem=f"needs about {gigabytes(need.total)} ({parts})")
