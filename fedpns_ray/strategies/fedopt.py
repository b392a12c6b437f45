"""FedOpt (Reddi et al. 2021): the aggregated step takes the place of a gradient in Adam, Yogi or Adagrad."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.interfaces import Nodes, ServerOptimizer, Vector

Array = NDArray[np.float64]


class AdaptiveServer(ServerOptimizer):
    """Algorithm 2 of FedOpt: m <- beta1 m + (1 - beta1) Delta, then v, then w <- w + eta m / (sqrt(v) + tau).

    Delta is the aggregated step, m begins at 0 and v at tau^2, the least that the algorithm allows; there is no bias
    correction. State and arithmetic are float64.
    """

    lr: float = Field(0.01, gt=0, le=1e6)
    """eta, the server's learning rate (the paper tunes it for each task)."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """The decay of the mean of steps m, from 0 to below 1."""
    tau: float = Field(1e-3, gt=0, le=1e3)
    """The degree of adaptivity: the smaller, the more steps differ in size from one parameter's own to another's."""
    _m: Array
    _v: Array

    def begin(self, nodes: Nodes) -> None:
        self._m, self._v = np.zeros(nodes.parameters), np.full(nodes.parameters, self.tau * self.tau)

    @abstractmethod
    def accumulated(self, v: Array, squared: Array) -> Array:
        """The next v, from the last one and Delta^2."""

    def move(self, weights: Vector, aggregated: Vector) -> Vector:
        step = aggregated.astype(np.float64) - weights
        self._m = self.beta1 * self._m + (1 - self.beta1) * step
        self._v = self.accumulated(self._v, step * step)
        return (weights + self.lr * self._m / (np.sqrt(self._v) + self.tau)).astype(np.float32)


class AdamServer(AdaptiveServer):
    """FedAdam: v <- beta2 v + (1 - beta2) Delta^2."""

    name = "adam"
    beta2: float = Field(0.99, ge=0, lt=1)
    """The decay of v, from 0 to below 1."""

    def accumulated(self, v: Array, squared: Array) -> Array:
        return self.beta2 * v + (1 - self.beta2) * squared


class YogiServer(AdaptiveServer):
    """FedYogi: v <- v - (1 - beta2) Delta^2 sign(v - Delta^2), so that v changes slowly where steps become small."""

    name = "yogi"
    beta2: float = Field(0.99, ge=0, lt=1)
    """The decay of v, from 0 to below 1."""

    def accumulated(self, v: Array, squared: Array) -> Array:
        return v - (1 - self.beta2) * squared * np.sign(v - squared)


class AdagradServer(AdaptiveServer):
    """FedAdagrad: v <- v + Delta^2."""

    name = "adagrad"
    lr: float = Field(0.1, gt=0, le=1e6)
    """eta, the server's learning rate (the paper tunes it for each task)."""
    beta1: float = Field(0.0, ge=0, lt=1)
    """The decay of the mean of steps m, from 0 (no momentum) to below 1."""

    def accumulated(self, v: Array, squared: Array) -> Array:
        return v + squared
