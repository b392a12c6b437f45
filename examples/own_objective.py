"""A user-defined objective with node state: every node goes on in the direction of its last round.

    fedpns run --objective examples.own_objective:Inertia --set push=0.2
    fedpns compare --strategies fedpns,fedavg --objective examples.own_objective:Inertia

A node keeps one vector, as long as the parameters, from one of its rounds to the next (zero at first). It travels with
the work, is part of the checkpoint, and may be larger than the memory for all nodes together.
"""

from pydantic import Field

from fedpns_ray.strategies import Objective


class Inertia(Objective):
    """A fraction `push` of the node's mean gradient in its last round is added to every gradient."""

    name = "inertia"
    keeps_states = True
    push: float = Field(0.1, ge=0, lt=1)
    """The fraction, from 0 to below 1."""

    def shift(self, states, shared):
        return self.push * states

    def next_states(self, states, shared, updates):
        path = (updates.steps * updates.lr).astype("float32")
        return -updates.of_parameters / path[:, None]
