"""Nodes, updates and devices made up for tests, with numbers that can be followed by hand."""

import numpy as np

from fedpns_ray.core.devices import Devices
from fedpns_ray.core.interfaces import Nodes, Updates


def devices(speed, uplink, samples=100, payload=1000, fading=False):
    speed, uplink = np.array(speed, dtype=float), np.array(uplink, dtype=float)
    return Devices(speed, uplink, np.full(len(speed), float(samples)), payload, 1, fading)


def nodes(count, per_round, sizes=None, model=None):
    sizes = np.full(count, 100) if sizes is None else np.array(sizes)
    return Nodes(sizes, np.zeros(count, dtype=bool), per_round, model)


def updates(deltas, ids=None, sizes=None, losses=None, **more):
    deltas = np.array(deltas, dtype=np.float32)
    m = len(deltas)
    return Updates(
        tuple(range(m)) if ids is None else tuple(ids),
        deltas,
        np.zeros(m) if losses is None else np.array(losses, dtype=float),
        np.full(m, 100) if sizes is None else np.array(sizes),
        np.full(m, 5),
        0.01,
        **more,
    )


class Asked:
    """A probe that answers from lists and remembers what it was asked."""

    def __init__(self, losses=(), resources=None):
        self.losses, self.found, self.questions = np.array(losses, dtype=float), resources, []

    def __call__(self, node_ids, samples=None):
        self.questions.append((list(node_ids), samples))
        return self.losses[list(node_ids)]

    def resources(self):
        return self.found
