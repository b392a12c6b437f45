"""What tests share: real data, or a skip that says what is missing (in CI: a failure)."""

import os
from pathlib import Path

import pytest

from fedpns_ray import InputError
from fedpns_ray.data.sources import data_root, load


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


def pytest_sessionfinish(session, exitstatus):
    """In CI no test may skip."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = 1
        reporter.write_line("CI: skipped tests are failures here", red=True)
