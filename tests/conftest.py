"""What tests share: real data, or a skip that says what is missing (in CI: a failure)."""

import os
from pathlib import Path

import pytest

from fedpns_ray import InputError
from fedpns_ray.data.sources import data_root, load
from fedpns_ray.runtime.leaving import leave_when_done
from tests.bucket import bucket_server, bucket_uri


def missing(reason: str) -> None:
    """A missing part is a skip with its reason on a user's machine, and a failure in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"missing in CI: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def mnist():
    """The real MNIST, under the data root."""
    try:
        return load("mnist")
    except InputError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def cifar10():
    """The real CIFAR-10, under the data root."""
    try:
        return load("cifar10")
    except InputError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def mnist_files(mnist) -> Path:
    """The folder with MNIST's official files."""
    raw = data_root() / "MNIST" / "raw"
    if not (raw / "train-images-idx3-ubyte.gz").exists():
        missing(f"the official files of MNIST are not in {raw}")
    return raw


@pytest.fixture(scope="session")
def s3():
    """The URI of an empty bucket on a server of its own."""
    with bucket_server() as port:
        yield bucket_uri(port)


@pytest.fixture(scope="module")
def cluster():
    """A real Ray cluster: two raylets on this machine, each with two cores and two GPUs that are only numbers."""
    yield from ray_cluster(num_cpus=2, num_gpus=2)


def ray_cluster(**machine):
    import ray
    from ray.cluster_utils import Cluster

    if ray.is_initialized():
        ray.shutdown()
    machine |= {"object_store_memory": 300 * 10**6, "memory": 8 * 10**9}
    often = {"metrics_report_interval_ms": 1000}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_metrics_report_interval_ms", "1000")  # for the agents, which keep gauges for two intervals
        cluster = Cluster(
            initialize_head=True, head_node_args={**machine, "include_dashboard": False, "_system_config": often}
        )
        cluster.add_node(**machine)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    cluster.wait_for_nodes(timeout=120)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


sessions: list[pytest.Session] = []
leave_when_done(lambda: int(sessions[0].exitstatus) if sessions else None)


def pytest_sessionfinish(session, exitstatus):
    """In CI no test may skip."""
    sessions.append(session)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = 1
        reporter.write_line("CI: skipped tests are failures here", red=True)
