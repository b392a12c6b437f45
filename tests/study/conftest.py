"""A real S3 server on this machine, and a study small enough to run many times."""

import socket
import subprocess
import sys
import time

import pytest

from tests.conftest import ray_cluster


@pytest.fixture(scope="module")
def cluster():
    """A real Ray cluster: two raylets on this machine, each with one core."""
    yield from ray_cluster(num_cpus=1)


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """The URI of an empty bucket on a server of its own."""
    import boto3

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys).create_bucket(Bucket="studies")
        yield f"s3://k:s@studies/%s?scheme=http&endpoint_override=127.0.0.1%%3A{port}&region=us-east-1"
    finally:
        server.terminate()
        server.wait()
