"""Ray's autoscaler v2 as a function: which machines it would start for a demand. Uses Ray's private names."""

import logging
import time
from typing import Any

from ray._raylet import GcsClient
from ray.autoscaler.v2.instance_manager import node_provider
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.instance_manager.subscribers.cloud_resource_monitor import CloudResourceMonitor
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.schema import AutoscalerInstance
from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.autoscaler.v2.utils import ResourceRequestUtil
from ray.core.generated.autoscaler_pb2 import ClusterResourceConstraint
from ray.core.generated.common_pb2 import LabelSelectorOperator
from ray.core.generated.instance_manager_pb2 import Instance, InstanceUpdateEvent, NodeKind

Status = Instance.InstanceStatus


class Autoscaler:
    """Ray's scheduler with one cluster file, and what it remembers of machines that did not come."""

    def __init__(self, config: dict[str, Any]):
        self._config = AutoscalingConfig(config, skip_content_hash=True)
        self._monitor = CloudResourceMonitor()
        self._head = config["head_node_type"]

    def failed(self, kind: str, status: "Status.ValueType") -> None:
        self._monitor.notify([InstanceUpdateEvent(instance_id="i", instance_type=kind, new_instance_status=status)])

    def starts(self, trials: int, on_demand: int = 0, requested: tuple[str, ...] = ()) -> dict[str, int]:
        """Kind → how many machines, for trials of a quarter of a GPU, beside a head and machines already requested.

        `on_demand` is a standing request as cluster/on_demand.py makes it.
        """
        labels = [[("ray.io/market-type", LabelSelectorOperator.LABEL_OPERATOR_IN, ["on-demand"])]]
        wanted = [ResourceRequestUtil.make({"GPU": 1}, label_selectors=labels)] * on_demand
        constraint = ClusterResourceConstraint(resource_requests=ResourceRequestUtil.group_by_count(wanted))
        demand = [ResourceRequestUtil.make({"CPU": 1, "GPU": 0.25})] * trials
        request = SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=self._config.get_node_type_configs(),
            max_num_nodes=self._config.get_max_num_nodes(),
            resource_requests=ResourceRequestUtil.group_by_count(demand),
            cluster_resource_constraints=[constraint] if on_demand else [],
            current_instances=[
                self._instance(0, self._head, NodeKind.HEAD),
                *(self._instance(k, kind, NodeKind.WORKER) for k, kind in enumerate(requested, 1)),
            ],
            cloud_resource_availabilities=self._monitor.get_resource_availabilities(),
            recoverable_resource_availabilities=self._monitor.get_recoverable_resource_availabilities(),
        )
        reply = ResourceDemandScheduler(None).schedule(request)
        return {launch.instance_type: launch.count for launch in reply.to_launch}

    def _instance(self, number: int, kind: str, node_kind: "NodeKind.ValueType") -> AutoscalerInstance:
        instance = Instance(
            instance_id=str(number), instance_type=kind, status=Instance.REQUESTED, node_kind=node_kind
        )  # on its way: it counts towards the limits, with all its resources
        return AutoscalerInstance(im_instance=instance)


def refused(provider: Any, config: dict[str, Any], kind: str, count: int) -> tuple[list[str], str]:
    """Asks a cloud that refuses, as the autoscaler does: what its log says, and what `ray status` is told."""

    class Reader:
        def get_cached_autoscaling_config(self) -> AutoscalingConfig:
            return AutoscalingConfig(config, skip_content_hash=True)

    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger(node_provider.__name__)
    log.addHandler(handler)
    before = log.level
    log.setLevel(logging.INFO)  # as the autoscaler's own process has it
    try:
        adapter = node_provider.NodeProviderAdapter(provider, Reader())
        adapter.launch({kind: count}, "a-request")
        deadline = time.monotonic() + 120
        while not (errors := adapter.poll_errors()):
            assert time.monotonic() < deadline, "no error within 120 s"
            time.sleep(0.1)
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    return logged, str(errors[0])


def standing_requests(address: str) -> list[tuple[dict[str, float], int]]:
    """What `request_resources` has asked of a running cluster and not withdrawn: resources and how often."""
    state = get_cluster_resource_state(GcsClient(address=address))
    return [
        (dict(one.request.resources_bundle), one.count)
        for constraint in state.cluster_resource_constraints
        for one in constraint.resource_requests
    ]
