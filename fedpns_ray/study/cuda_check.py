"""Whether torch can use the GPUs that trials will be given, asked before the first of them starts."""

from __future__ import annotations

import ray
from ray.exceptions import NodeDiedError, TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedpns_ray.errors import InputError
from fedpns_ray.runtime.hardware import count_gpus
from fedpns_ray.study.packing import Packing

PATIENCE = 60.0
"""Seconds for all machines to answer."""


def check_cuda(packing: Packing) -> None:
    """Refuse GPUs that torch cannot use; machines that join later are asked by the trials that they get."""
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
            count_there = ray.get(answer)
        except (TaskUnschedulableError, NodeDiedError):  # a machine that has just gone
            continue
        if count_there < 1:
            raise InputError(
                f"gpus_per_trial: machine {asked[answer]['NodeManagerHostname']} has GPUs by Ray's account, but torch "
                "sees no CUDA there; install a CUDA build of torch and its driver, set gpus_per_trial: 0, or set "
                "cpu_fallback: true"
            )
