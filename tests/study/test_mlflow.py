"""Studies logged to MLflow with the real library: a folder, what is refused, and credentials that stay hidden."""

import os
import threading
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar
from unittest import mock

import pandas as pd
import pytest

from fedpns_ray import InputError
from fedpns_ray.addresses import redacted
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.loggers import loggers
from fedpns_ray.terminal.words import noted_command
from tests.bench import Bench

mlflow = pytest.importorskip("mlflow")

TINY = "base: {nodes: 10, samples_per_node: 50, epochs: 1, rounds: 5, fraction: 0.3}\naxes: {sigma: [0.2, 0.5]}\n"


@pytest.fixture(autouse=True)
def environment():
    """MLflow reads stores and users from the environment."""
    with mock.patch.dict(os.environ):
        os.environ.pop("MLFLOW_ALLOW_FILE_STORE", None)
        yield


def test_a_folder_holds_the_study(tmp_path):
    (tmp_path / "s.yaml").write_text(TINY)
    process = Bench(tmp_path, "study", "s.yaml", "--out", "o", "--mlflow", "my logs").start()
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0 and "Traceback" not in err and "mlflow" not in err.lower(), err
    trials = pd.read_csv(tmp_path / "o" / "study.csv").set_index("trial")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    client = mlflow.tracking.MlflowClient((tmp_path / "my logs").as_uri())
    runs = client.search_runs([client.get_experiment_by_name("s").experiment_id])
    assert {run.info.run_name for run in runs} == set(trials.index) and {run.info.status for run in runs} == {
        "FINISHED"
    }
    for run in runs:
        trial = trials.loc[run.info.run_name]
        assert run.data.metrics["best_accuracy"] == pytest.approx(trial["best_accuracy"])
        assert run.data.metrics["round"] == 5 and float(run.data.params["experiment/sigma"]) == trial["sigma"]


def test_what_mlflow_cannot_do_is_refused_before_anything_starts(tmp_path):
    (tmp_path / "s.yaml").write_text(TINY)
    process = Bench(tmp_path, "study", "s.yaml", "--out", "o", "--mlflow", "http://me:secret@127.0.0.1:1").start()
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (2, "") and err.count("\n") == 1 and "secret" not in err, err
    assert err.startswith("fedpns: mlflow: http://127.0.0.1:1 cannot be used (") and "it must be a folder, a dat" in err
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("s3://bucket/logs", "s3://bucket/logs"),
        ("nonsense://me:secret@host/logs?key=secret", "nonsense://host/logs"),
        ("nonsense://me:sec/ret@host/secret", "nonsense://…"),
        ("http://[secret", "the address"),
        ("file:///dev/null/logs", "file:///dev/null/logs"),
        ("/dev/null/logs", "/dev/null/logs"),
    ],
)
def test_a_refusal_is_one_line_without_credentials(tmp_path, place, shown):
    with pytest.raises(InputError) as caught:
        loggers("s", Storage(tmp_path), place, None)
    message = str(caught.value)
    assert message.startswith(f"mlflow: {shown} cannot be used (") and "\n" not in message
    assert not any(secret in message for secret in ("secret", "sec/", "ret@"))


def test_a_folder_that_was_forbidden_stays_so(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "false")
    with pytest.raises(InputError, match=r"cannot be used \(The filesystem tracking backend"):
        loggers("s", Storage(tmp_path), str(tmp_path / "logs"), None)


def test_a_deleted_experiment(tmp_path):
    place = str(tmp_path / "logs")
    loggers("s", Storage(tmp_path), place, None)
    client = mlflow.tracking.MlflowClient((tmp_path / "logs").as_uri())
    client.delete_experiment(client.create_experiment("s"))
    with pytest.raises(InputError, match="holds a deleted experiment s; `mlflow experiments restore -x"):
        loggers("s", Storage(tmp_path), place, None)


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("https://me:secret@host:5000/a", "https://host:5000/a"),
        ("postgresql://me:sec@ret@host/db?password=secret", "postgresql://host/db"),
        ("mysql://me:s@h/db?password=a@b", "mysql://…"),
        ("http://[secret", "the address"),
        ("runs/a@b", "runs/a@b"),
        ("sqlite:////a@b/mlflow.db", "sqlite:////a@b/mlflow.db"),
        ("databricks", "databricks"),
    ],
)
def test_addresses_as_they_may_be_shown(place, shown):
    assert redacted(place) == shown


def test_the_noted_command_holds_no_credentials():
    place, uri = "s3://k:secret@bucket/study", "http://me:secret@host:5000"
    noted = noted_command(["study", "s.yaml", "--out", place, "--mlflow", uri])
    assert noted == "fedpns study s.yaml --out s3://bucket/study --mlflow http://host:5000"
    noted = noted_command(["study", f"--out={place}", f"--mlflow={uri}", "s.yaml", "--out", place, "--mlflow", uri])
    assert "--out=s3://bucket/study --mlflow=http://host:5000 s.yaml --out" in noted and "secret" not in noted


class Server(BaseHTTPRequestHandler):
    """Has no experiments, and records the user of each request."""

    users: ClassVar[list[str]] = []

    def do_GET(self):
        self.users.append(b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode())
        answer = b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such experiment"}'
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


def test_a_server_gets_the_user_that_its_address_names(tmp_path):
    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    try:
        (callback,) = loggers("s", Storage(tmp_path), f"http://me:sec%40ret@127.0.0.1:{port}", None)
    finally:
        server.shutdown()
        server.server_close()
    assert Server.users[-1] == "me:sec@ret" and callback.tracking_uri == f"http://127.0.0.1:{port}"
