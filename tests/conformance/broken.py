"""Strategies with one mistake each: what `fedpns conformance` is for."""

import numpy as np

from fedpns_ray.strategies import Aggregation, Outcome, Selection
from fedpns_ray.strategies.candidates import CandidateSelection
from fedpns_ray.strategies.fedavg import RandomSelection


class Twice(RandomSelection):
    """Draws with replacement."""

    name = "twice"

    def draw(self, rng, probe):
        return rng.integers(0, self._nodes.count, self._nodes.per_round)


class Improper(CandidateSelection):
    """Sends with probability m ||u_i|| / sum, which may be above 1."""

    name = "improper"

    def sift(self, rng, updates):
        norms = updates.norms() if len(updates) else np.ones(0)
        sent = rng.random(len(norms)) < self._nodes.per_round * norms / max(norms.sum(), 1e-9)
        return updates.subset(np.flatnonzero(sent).tolist())


class Unequal(Selection):
    """Claims that every node counts alike, and draws by data size."""

    name = "unequal"
    unbiased = "nodes"

    def begin(self, nodes):
        self._nodes = nodes

    def draw(self, rng, probe):
        n = self._nodes
        return rng.choice(n.count, min(n.per_round, n.count), replace=False, p=n.sizes / n.sizes.sum())

    _nodes: object


class UnequalContinuous(Unequal):
    """The same by sorting continuous random numbers, which cannot be enumerated."""

    name = "unequal-continuous"

    def draw(self, rng, probe):
        keys = rng.random(self._nodes.count) ** (1 / self._nodes.sizes)
        return np.argsort(-keys)[: self._nodes.per_round]


class Fixed(RandomSelection):
    """Always the first nodes."""

    name = "fixed"
    unbiased = ""

    def draw(self, rng, probe):
        return range(min(self._nodes.per_round, self._nodes.count))


class Restless(RandomSelection):
    """Counts its draws while it draws, so that a round drawn again after a fault is another one."""

    name = "restless"
    unbiased = ""
    _turn: int = 0

    def draw(self, rng, probe):
        self._turn += 1
        return {(self._turn + k) % self._nodes.count for k in range(self._nodes.per_round)}


class Forgetful(RandomSelection):
    """Learns from every round, and does not save what it learnt."""

    name = "forgetful"
    unbiased = ""
    _turn: int = 0

    def draw(self, rng, probe):
        return {(self._turn + k) % self._nodes.count for k in range(self._nodes.per_round)}

    def learn(self, updates, outcome):
        self._turn += 1

    def state_dict(self):
        return {}


class Sociable(RandomSelection):
    """Draws nobody unless there are two."""

    name = "sociable"

    def draw(self, rng, probe):
        return super().draw(rng, probe) if self._nodes.count > 1 else []


class Backwards(Aggregation):
    """Subtracts the mean."""

    name = "backwards"

    def combine(self, weights, updates, check_loss):
        return Outcome(weights - updates.deltas.mean(axis=0), aggregated=updates.node_ids)


class Normalised(Aggregation):
    """Divides by the norm of the mean, and by 0 where that is 0."""

    name = "normalised"

    def combine(self, weights, updates, check_loss):
        mean = updates.deltas.mean(axis=0)
        with np.errstate(invalid="ignore"):
            return Outcome(weights + mean / np.linalg.norm(mean), aggregated=updates.node_ids)


class Demanding(RandomSelection):
    """Asks for more nodes than there may be."""

    name = "demanding"

    def draw(self, rng, probe):
        return rng.choice(self._nodes.count, self._nodes.per_round, replace=False)


class Hasty(RandomSelection):
    """Asks for more nodes than may be available."""

    name = "hasty"

    def draw(self, rng, probe):
        return rng.choice(probe.available, min(self._nodes.per_round, self._nodes.count), replace=False)


class Hopeful(RandomSelection):
    """Expects that somebody returned."""

    name = "hopeful"
    _last: int = 0

    def learn(self, updates, outcome):
        self._last = updates.node_ids[0]


class Greedy(RandomSelection):
    """Trains more nodes than it announced."""

    name = "greedy"

    def draw(self, rng, probe):
        return range(self._nodes.count)


class Nobody(RandomSelection):
    """Draws nobody, as a deadline that no node meets would. No mistake: the round passes, and the model stays."""

    name = "nobody"
    covers = False

    def draw(self, rng, probe):
        return []
