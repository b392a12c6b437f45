"""A real Ray cluster: two raylets on this machine, each with two cores and two GPUs that are only numbers."""

import os

import pytest

os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"


@pytest.fixture(scope="module")
def cluster():
    import ray
    from ray.cluster_utils import Cluster

    if ray.is_initialized():
        ray.shutdown()
    machine = {"num_cpus": 2, "num_gpus": 2, "object_store_memory": 200 * 10**6, "memory": 8 * 10**9}
    often = {"metrics_report_interval_ms": 1000}
    cluster = Cluster(
        initialize_head=True, head_node_args={**machine, "include_dashboard": False, "_system_config": often}
    )
    cluster.add_node(**machine)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()
