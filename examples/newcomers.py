"""A user-defined strategy: nodes that were drawn least often come first, and adverse updates are excluded.

    fedpns run --strategy examples.newcomers:Newcomers --set patience=2
    fedpns compare --strategies examples.newcomers:Newcomers,fedpns,fedavg --rounds 50

A selection draws nodes and learns from the outcome. Its fields are its parameters; private attributes are its state,
which checkpoints save. The other two parts come from the registry, by name.
"""

import numpy as np

from fedpns_ray.strategies import Preset, Selection


class LeastDrawn(Selection):
    """The |S_t| nodes drawn least often; those within `patience` draws of the minimum are equally likely."""

    name = "least-drawn"
    patience: int = 1
    _nodes: object
    _times: np.ndarray

    def begin(self, nodes):
        self._nodes, self._times = nodes, np.zeros(nodes.count, dtype=np.int64)

    def draw(self, rng, probe):
        ahead = np.maximum(self._times - self._times.min() - self.patience, 0) + rng.random(self._nodes.count)
        return np.argsort(ahead)[: self._nodes.per_round].tolist()

    def learn(self, updates, outcome):
        self._times[list(updates.node_ids)] += 1


Newcomers = Preset("nodes drawn least often come first", selection=LeastDrawn, aggregation="optimal")
