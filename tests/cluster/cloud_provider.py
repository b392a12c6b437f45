"""A node provider for Ray whose machines are hosts of this machine: it asks the cloud of cloud.py, over a socket.

The laptop and the head import it by its file alone, from a folder on PYTHONPATH.
"""

import sys
from multiprocessing.connection import Client
from pathlib import Path

from ray.autoscaler.node_launch_exception import NodeLaunchException
from ray.autoscaler.node_provider import NodeProvider


class CloudProvider(NodeProvider):
    def _ask(self, *request):
        with Client(self.provider_config["socket"]) as cloud:
            cloud.send(request)
            answer = cloud.recv()
        if isinstance(answer, tuple):
            raise NodeLaunchException(*answer, None)
        return answer

    def non_terminated_nodes(self, tag_filters):
        machines = self._ask("machines")
        return [name for name, tags in machines.items() if tag_filters.items() <= tags.items()]

    def is_running(self, node_id):
        return node_id in self._ask("machines")

    def is_terminated(self, node_id):
        return not self.is_running(node_id)

    def node_tags(self, node_id):
        return self._ask("machines").get(node_id, {})

    def internal_ip(self, node_id):
        return self._ask("address", node_id)

    external_ip = internal_ip

    def set_node_tags(self, node_id, tags):
        self._ask("tag", node_id, tags)

    def create_node(self, node_config, tags, count):
        self._ask("create", node_config, tags, count)

    def terminate_node(self, node_id):
        self._ask("terminate", node_id, Path(sys.argv[0]).name)
