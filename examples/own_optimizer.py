"""A user-defined local optimiser: Lion (Chen et al. 2023), the sign of an average of gradients.

    fedpns run --optimizer examples.own_optimizer:Lion --lr 0.001 --set keep=0.95
    fedpns compare --strategies fedpns,fedavg --optimizer examples.own_optimizer:Lion --lr 0.001

An optimiser starts a node's steps anew in each round: what they remember is made in `start`. Its fields are its
parameters. It works on the flat vector of one node, and on a matrix with one row per node.
"""

from pydantic import Field

from fedpns_ray.core.optimizers import Optimizer


class Lion(Optimizer):
    """w <- w - eta sign(lead m + (1 - lead) g), then m <- keep m + (1 - keep) g."""

    name = "lion"
    lead: float = Field(0.9, ge=0, lt=1)
    """The weight of past gradients in the step, from 0 to below 1."""
    keep: float = Field(0.99, ge=0, lt=1)
    """The weight of past gradients in the average m, from 0 to below 1."""

    def start(self, weights, lr):
        m = weights.new_zeros(weights.shape)

        def step(gradient):
            weights.add_(m.lerp(gradient, 1 - self.lead).sign_(), alpha=-lr)
            m.lerp_(gradient, 1 - self.keep)

        return step
