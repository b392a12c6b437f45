"""A strategy of your own: nodes that were drawn least often come first, and adverse updates are excluded.

    fedpns run --strategy examples.newcomers:Newcomers --set patience=2
    fedpns compare --strategies examples.newcomers:Newcomers,fedpns,fedavg --rounds 50

A selection draws nodes and learns from what came of them. Its fields are its parameters; what `learn` changes is its
state, which checkpoints hold. The other two parts are the registry's own, by name.
"""

import numpy as np

from fedpns_ray.strategies import Preset, Selection


class LeastDrawn(Selection):
    """Of the nodes drawn least often, |S_t| uniformly; a node may be ahead of the last one by `patience` draws."""

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
