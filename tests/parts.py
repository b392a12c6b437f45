"""Parts as a user might bring them, right and wrong."""

import numpy as np
from pydantic import PositiveInt

from fedpns_ray.data.datasets.synthetic import SyntheticDataset
from fedpns_ray.strategies import Aggregation, Objective, Outcome, Preset, Selection
from fedpns_ray.strategies.fedavg import RandomSelection


class Stride(Selection):
    """Every few nodes, from node 0 on."""

    name = "stride"
    stride: PositiveInt = 5
    _count: int

    def begin(self, nodes):
        self._count = nodes.count

    def draw(self, rng, probe):
        return range(0, self._count, self.stride)


class Poison(Objective):
    """The gradient of the first node that trains is not a number."""

    name = "poison"

    def correct(self, gradient, weights, anchor):
        gradient[0] = float("nan")


class Shout(Objective):
    """The first node that trains returns an update of about 1e30, in the wrong direction."""

    name = "shout"

    def correct(self, gradient, weights, anchor):
        if (weights[0] == anchor).all():  # its first step
            gradient[0] *= -1e32


class Loud(Objective):
    """As Shout, but for every node whose first step has such a gradient, whichever actor trains it."""

    name = "loud"
    threshold: float = 0.25

    def correct(self, gradient, weights, anchor):
        first = (weights == anchor).all(dim=1)
        gradient[(gradient[:, 0] > self.threshold) & first] *= -1e32


class Impossible(Stride):
    """Draws what cannot be drawn."""

    name = "impossible"
    kind: str = "missing"

    def draw(self, rng, probe):
        return {"missing": [0, 1, 99], "twice": np.array([3, 0, 3]), "nothing": None, "names": ["a"]}[self.kind]


class Clumsy(Stride):
    """Fails in round 3."""

    name = "clumsy"
    _round: int = 0

    def draw(self, rng, probe):
        self._round += 1
        if self._round == 3:
            raise ValueError("a mistake\nover two lines")
        return super().draw(rng, probe)


class Exhausted(Stride):
    """Asks an empty iterator for a node."""

    name = "exhausted"

    def draw(self, rng, probe):
        return [next(iter(()))]


class TooShort(Aggregation):
    """Forgets a parameter."""

    name = "too-short"

    def combine(self, weights, updates, check_loss):
        return Outcome(weights[:-1], aggregated=updates.node_ids)


every_fifth = Preset("every fifth node", selection=Stride)


class Twins(RandomSelection):
    """A selection with a parameter that every experiment has, and one that the data set below has too."""

    name = "twins"
    lr: int = 1
    depth: int = 1


class Named(SyntheticDataset):
    """A data set of one's own, with such parameters."""

    name = "named"
    lr: int = 2
    depth: int = 2
