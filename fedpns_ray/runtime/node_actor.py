"""NodeActor: hosts nodes on its share of a machine."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Any

import ray
import torch

from fedpns_ray.core.interfaces import Vector
from fedpns_ray.core.training import Worker
from fedpns_ray.core.user_code import blamed_on
from fedpns_ray.core.work import Answer, Work
from fedpns_ray.data import Population
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.runtime.gpu_memory import refuse_beyond_gpu
from fedpns_ray.runtime.hardware import hardware


def assigned_device(cpu_fallback: bool) -> str:
    """The device torch uses in this process: the GPU if Ray assigned one.

    A GPU that torch cannot use is refused, since training would silently continue on the CPU at a fraction of the
    speed. `cpu_fallback` allows it, and the summary names the device.
    """
    if not ray.get_gpu_ids():
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if cpu_fallback:
        return "cpu"
    problem = f"a share of a GPU is assigned on {socket.gethostname()}, but torch sees no CUDA there"
    remedies = "ask for no GPU (gpus_per_actor or gpus_per_trial 0), or set cpu_fallback"
    raise InputError("gpus", hint=f"install a CUDA build of torch and its driver, {remedies}", problem=problem)


@ray.remote
class NodeActor:
    """One worker in its own process, with one torch thread and the device that Ray assigned.

    It keeps no state between calls, so it may die, restart elsewhere and be asked again.
    """

    def __init__(self, experiment: Experiment, population: Population, cpu_fallback: bool) -> None:
        torch.set_num_threads(1)
        self._experiment, self._population, self._cpu_fallback = experiment, population, cpu_fallback
        self._made: Worker | None = None

    @property
    def _worker(self) -> Worker:
        """Built by the first call: an error in an actor's constructor would not reach the caller as itself."""
        if self._made is None:
            with blamed_on(self._experiment.user_packages):
                made = Worker(self._experiment, self._population, assigned_device(self._cpu_fallback))
            refuse_beyond_gpu(made)
            self._made = made
        return self._made

    def describe(self) -> dict[str, Any]:
        """Where this actor runs; answers once it is ready."""
        device = self._worker.device
        return {
            "hardware": hardware(device, self._worker.training),
            "gpu_ids": ray.get_gpu_ids(),
            "without_cuda": bool(ray.get_gpu_ids()) and device == "cpu",
            "machine": ray.get_runtime_context().get_node_id(),
            "pid": os.getpid(),
        }

    def answer(self, weights: Vector, shared: Vector, share: Work) -> Answer:
        """The answer to this actor's share of the work; what all share comes separately, through Ray's object store."""
        with blamed_on(self._experiment.user_packages):
            return self._worker.answer(replace(share, weights=weights, shared=shared))
