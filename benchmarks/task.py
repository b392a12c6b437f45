"""The task that all engines are given: 10 of 50 nodes, i.i.d., with 200 samples each, one epoch, batches of 20.

The samples are those of this project's own population, normalised, in a file that needs only numpy to be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedpns_ray import Experiment
from fedpns_ray.core.models import flat_model_for
from fedpns_ray.data import build_population

DATASETS = {"mlr": "mnist", "cnn-m": "mnist", "cnn-c": "cifar10"}
TASK = {"nodes": 50, "fraction": 0.2, "samples_per_node": 200, "batch_size": 20, "epochs": 1, "lr": 0.01}
PLAIN = {"strategy": "fedavg", "lr_decay": 1.0, "sigma": 1.0, "rounds": 1_000_000}


def experiment(model: str, **settings: Any) -> Experiment:
    """What this project runs for the task: FedAvg with a constant learning rate, until nobody asks for more rounds."""
    return Experiment(**{**TASK, **PLAIN, "dataset": DATASETS[model], "model": model, **settings})


def write_task(model: str, folder: Path) -> Path:
    """The file of the task of a model: samples and labels of every node, the test set, the initial weights."""
    path = folder / f"{model}.npz"
    if path.exists():
        return path
    e = experiment(model)
    population = build_population(e)
    samples = population.samples
    own = [population.own(node) for node in range(population.count)]
    initial = flat_model_for(e, samples).weights.numpy()

    def seen(x: Any) -> Any:
        """As models see them; channels last."""
        found = (x.astype(np.float32) / 255 - samples.mean) / samples.deviation
        return np.ascontiguousarray(np.moveaxis(found, -3, -1), dtype=np.float32)

    np.savez(
        path,
        x=np.stack([seen(x) for x, _ in own]),
        y=np.stack([y for _, y in own]).astype(np.int64),
        test_x=seen(samples.test_x),
        test_y=samples.test_y.astype(np.int64),
        initial=initial,
    )
    return path
