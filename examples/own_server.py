"""A user-defined server optimiser: full steps at first, shorter ones later.

    fedpns run --server examples.own_server:Shrinking --set server.power=0.5
    fedpns compare --strategies fedpns,fedavg --server examples.own_server:Shrinking

A server optimiser moves the model, given the last one and the one that the updates were aggregated into. Private
attributes are its state, which checkpoints save. Its parameters are written with its kind: `server.power`.
"""

from pydantic import Field

from fedpns_ray.strategies import ServerOptimizer


class Shrinking(ServerOptimizer):
    """In round t the model goes 1 / t^power of the way."""

    name = "shrinking"
    power: float = Field(0.25, ge=0, le=1)
    """How fast steps become shorter, from 0 (never) to 1."""
    _round: int = 0

    def move(self, weights, aggregated):
        self._round += 1
        return weights + (aggregated - weights) * self._round**-self.power
