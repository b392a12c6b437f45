"""Loggers of others, through Tune's own callbacks; each is an extra that need not be installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpns_ray.errors import InputError
from fedpns_ray.study.storage import Storage


def loggers(name: str, storage: Storage, mlflow: str | None, wandb: str | None) -> tuple[Any, ...]:
    """Callbacks for those that were asked for. Weights & Biases keeps its own files in the study's folder."""
    found: list[Any] = []
    if mlflow:
        _installed("mlflow")
        from ray.air.integrations.mlflow import MLflowLoggerCallback

        found.append(MLflowLoggerCallback(tracking_uri=mlflow, experiment_name=name))
    if wandb:
        _installed("wandb")
        from ray.air.integrations.wandb import WandbLoggerCallback

        class Wandb(WandbLoggerCallback):
            def __del__(self) -> None:
                """All is said at the experiment's end; at the interpreter's end Ray's own would ask a Ray that is gone."""

        own = storage.path or Path.cwd()
        own.mkdir(parents=True, exist_ok=True)
        found.append(Wandb(project=wandb, group=name, dir=str(own)))
    return tuple(found)


def _installed(package: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise InputError(f"{package}: is not installed; `pip install fedpns-ray[{package}]`")
