"""A cluster on which trials run one to a machine."""

import pytest

from tests.conftest import ray_cluster


@pytest.fixture(scope="module")
def cluster():
    """A real Ray cluster: two raylets on this machine, each with one core."""
    yield from ray_cluster(num_cpus=1)
