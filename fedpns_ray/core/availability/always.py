"""The default: every node can be drawn in every round."""

from __future__ import annotations

from fedpns_ray.core.availability.interfaces import Availability, Labels
from fedpns_ray.core.interfaces import Nodes


class Always(Availability):
    """Every node is available in every round."""

    name = "always"

    def timetable(self, nodes: Nodes, seed: int, labels: Labels) -> None:
        return None
