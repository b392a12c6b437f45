"""Third-party loggers, through Tune's own callbacks; each is an extra that need not be installed."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fedpns_ray.errors import InputError
from fedpns_ray.records.storage import Storage

PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""For the first question to an MLflow server: its own patience would keep a mistyped address waiting for minutes."""


def loggers(name: str, storage: Storage, mlflow: str | None, wandb: str | None) -> tuple[Any, ...]:
    """Callbacks for those that were asked for. Weights & Biases keeps its own files in the study's folder."""
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
                """All is said at the experiment's end; at the interpreter's end Ray's own would ask a Ray that is gone."""

        own = storage.path or Path.cwd()
        own.mkdir(parents=True, exist_ok=True)
        found.append(Wandb(project=wandb, group=name, dir=str(own)))
    return tuple(found)


def _installed(package: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise InputError(f"{package}: is not installed; `pip install fedpns-ray[{package}]`")


# --- MLflow ---------------------------------------------------------------------------------------------------------


def without_credentials(place: str) -> str:
    """An address of MLflow as it may be shown: without its user, its password and its query."""
    if not _is_uri(place) or place.startswith(("file:", "sqlite:")):
        return place
    try:
        parts = urlsplit(place)
    except ValueError:
        return "the address"
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":  # a password with a / or ? in it: who knows where it ends
        return f"{parts.scheme}://…"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _usable(place: str, name: str) -> str:
    """The tracking URI of a place at which MLflow can log this study, tried now: a study must not end for its log."""
    uri = ""
    try:
        uri = _tracking_uri(place)
        with _little_patience():
            experiment = _mlflow_client(uri).get_experiment_by_name(name)
    except Exception as error:  # by the kind of store: MLflow's own, the database's, the file system's
        raise InputError(
            f"mlflow: {without_credentials(place)} cannot be used ({_reason(error, place, uri)}); it must be a folder, a "
            "database such as sqlite:///mlflow.db, or a tracking server such as http://127.0.0.1:5000"
        ) from None
    if experiment and experiment.lifecycle_stage == "deleted":
        raise InputError(
            f"mlflow: {without_credentials(place)} holds a deleted experiment {name}; "
            f"`mlflow experiments restore -x {experiment.experiment_id}`, or name another place"
        )
    return uri


def _tracking_uri(place: str) -> str:
    """As MLflow wants it. A server's credentials go where MLflow looks for them, so that no message of its can show them."""
    if not _is_uri(place):
        place = Path(place).absolute().as_uri()
    if place.startswith("file:"):  # MLflow takes no folder unless it is told to; who names one has told it
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
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", place)) or place == "databricks"


def _mlflow_client(uri: str) -> Any:
    from mlflow.tracking import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.ERROR)  # it tells of every table that it makes
    return MlflowClient(tracking_uri=uri)


@contextmanager
def _little_patience() -> Iterator[None]:
    """What the user has set wins."""
    ours = {key: value for key, value in PATIENCE.items() if key not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for key in ours:
            del os.environ[key]


def _reason(error: Exception, place: str, uri: str) -> str:
    """In one line; its kind alone where its text may hold what an address must not show."""
    if _is_uri(place) and uri != without_credentials(place):
        return type(error).__name__
    return " ".join(str(error).split())[:240]
