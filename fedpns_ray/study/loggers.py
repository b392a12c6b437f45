"""Third-party loggers, through Tune's own callbacks; each is an optional extra."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fedpns_ray.addresses import is_uri, reason, redacted
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.records.storage import Storage

FIRST_REQUEST = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""For the first request to an MLflow server: with its own limits, a mistyped address would take minutes to fail."""


def loggers(name: str, storage: Storage, mlflow: str | None, wandb: str | None) -> tuple[Any, ...]:
    """Callbacks for the loggers asked for. Weights & Biases keeps its own files in the study's folder."""
    found: list[Any] = []
    if mlflow:
        _installed("mlflow")
        from ray.air.integrations.mlflow import MLflowLoggerCallback

        found.append(MLflowLoggerCallback(tracking_uri=_usable(mlflow, name), experiment_name=name))
    if wandb:
        _installed("wandb")
        from ray.air.integrations.wandb import WandbLoggerCallback

        class Wandb(WandbLoggerCallback):
            def __del__(self) -> None:
                """Ray 2.60's own version calls Ray at the interpreter's exit, when Ray is gone and all is logged."""

        own = storage.path or Path.cwd()
        own.mkdir(parents=True, exist_ok=True)
        found.append(Wandb(project=wandb, group=name, dir=str(own)))
    return tuple(found)


def _installed(package: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise InputError(package, hint=f"`pip install fedpns-ray[{package}]`", problem="is not installed")


# --- MLflow ---------------------------------------------------------------------------------------------------------


def _usable(place: str, name: str) -> str:
    """The tracking URI of a place, tested now: a study must not fail later because of its log."""
    try:
        uri = _tracking_uri(place)
        with _short_timeouts():
            experiment = _mlflow_client(uri).get_experiment_by_name(name)
    except Exception as error:  # depends on the store: MLflow's own, a database's, the file system's
        allowed = (
            "it must be a folder, a database such as sqlite:///mlflow.db, "
            "or a tracking server such as http://127.0.0.1:5000"
        )
        problem = f"cannot be used ({reason(error, place)})"
        raise InputError("mlflow", Shown(redacted(place)), allowed, problem=problem) from None
    if experiment and experiment.lifecycle_stage == "deleted":
        hint = f"`mlflow experiments restore -x {experiment.experiment_id}`, or name another place"
        problem = f"holds a deleted experiment {name}"
        raise InputError("mlflow", Shown(redacted(place)), hint=hint, problem=problem)
    return uri


def _tracking_uri(place: str) -> str:
    """The tracking URI. A server's credentials move to MLflow's environment variables, so no message can show them."""
    if not _is_uri(place):
        place = Path(place).absolute().as_uri()
    if place.startswith("file:"):  # MLflow accepts a folder only if told to; a user who names one has asked for it
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    user, at, _ = urlsplit(place).netloc.rpartition("@") if place.startswith(("http:", "https:")) else ("", "", "")
    if at:
        name, _, password = user.partition(":")
        os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"] = (
            unquote(name),
            unquote(password),
        )
        return place.replace(f"{user}@", "", 1)
    return place


def _is_uri(place: str) -> bool:
    return is_uri(place) or place == "databricks"


def _mlflow_client(uri: str) -> Any:
    from mlflow.tracking import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.ERROR)  # it logs every table that it creates
    return MlflowClient(tracking_uri=uri)


@contextmanager
def _short_timeouts() -> Iterator[None]:
    """Short timeouts, unless the user has set others."""
    ours = {key: value for key, value in FIRST_REQUEST.items() if key not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for key in ours:
            del os.environ[key]
