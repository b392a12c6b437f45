"""Checks that torch can use the GPUs that trials will get, before the first trial starts."""

from __future__ import annotations

import ray
from ray.exceptions import NodeDiedError, TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedpns_ray.errors import InputError
from fedpns_ray.runtime.hardware import count_gpus
from fedpns_ray.study.packing import Packing

PATIENCE = 60.0
"""Seconds within which all machines must answer."""


def check_cuda(packing: Packing) -> None:
    """Refuse GPUs that torch cannot use; on machines that join later, each trial checks for itself."""
    if packing.cpu_fallback or not any(bundle.get("GPU") for bundle in packing.bundles):
        return
    count = ray.remote(num_cpus=0, max_retries=0)(count_gpus)
    asked = {
        count.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(): node
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("GPU")
    }
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE) if asked else ([], [])
    for answer in answered:
        try:
            count_there = ray.get(answer, timeout=PATIENCE)
        except (TaskUnschedulableError, NodeDiedError):  # the machine has just left the cluster
            continue
        if count_there < 1:
            host = asked[answer]["NodeManagerHostname"]
            problem = f"machine {host} has GPUs according to Ray, but torch sees no CUDA there"
            remedies = "set gpus_per_trial: 0, or set cpu_fallback: true"
            hint = f"install a CUDA build of torch and its driver, {remedies}"
            raise InputError("gpus_per_trial", hint=hint, problem=problem)
