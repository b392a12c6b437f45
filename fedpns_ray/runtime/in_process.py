"""A run in one process: the quickest to start, a trial of a study, and the reference for all other layouts."""

from __future__ import annotations

from fedpns_ray.core.training import Worker
from fedpns_ray.data import Population
from fedpns_ray.experiment import Experiment
from fedpns_ray.runtime.driver import Driver, Recording, begun
from fedpns_ray.runtime.gpu_memory import refuse_beyond_gpu
from fedpns_ray.runtime.hardware import hardware

NOWHERE = Recording()


def in_process(
    experiment: Experiment, population: Population, recording: Recording = NOWHERE, device: str = "cpu"
) -> Driver:
    """A run that one worker in this process answers, on one device."""
    worker = Worker(experiment, population, device)
    refuse_beyond_gpu(worker)
    run = begun(experiment, population, worker)
    return Driver(run, population, worker.answer, hardware(device, worker.training), recording)
