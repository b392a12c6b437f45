"""What every local optimiser is: a part that starts a node's steps anew in each round."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from fedpns_ray.core.interfaces import Part

if TYPE_CHECKING:  # importing torch takes seconds, and the registry is read before anything trains
    from torch import Tensor

Step = Callable[["Tensor"], object]
"""Takes a gradient and moves the weights, in place. It may overwrite the gradient; what it returns is not used."""


class Optimizer(Part):
    """How a node steps. The part holds parameters only: a node keeps no state from one round to the next."""

    required: ClassVar[tuple[str, ...]] = ("start",)

    def start(self, weights: Tensor, lr: float) -> Step:
        """The steps of one round, from `weights` on, at the learning rate of that round.

        `weights` is the flat vector of one node, or a matrix with one row per node; gradients have the same shape.
        Whatever the steps remember (momentum, a count) is made here, so that it is fresh for each node in each round.
        A row must not depend on the other rows: which nodes train together depends on the layout.
        """
        raise NotImplementedError
