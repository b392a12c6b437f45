"""The exact distribution of a random draw: it is repeated once for every way in which its random choices can fall.

A draw from a generator is a tree of choices. `Chances` stands in for the generator: it follows one branch and
multiplies the probabilities along it; `distribution` walks over all branches. A uniform number that is only compared
with a probability is a coin. A draw that uses it in any other way is continuous; many samples then take the place of
the enumeration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.streams import stream

T = TypeVar("T")
SLACK = 1e-9
"""Rounding that a probability is allowed."""
MOST_BRANCHES, SAMPLES = 5000, 2000


class ImproperError(ValueError):
    """Probabilities that are none: outside of 0 .. 1, or with another sum than 1."""


class EndlessError(Exception):
    """The draw cannot be enumerated: it uses continuous random numbers, or has too many outcomes."""


@dataclass
class Fork:
    """A choice that was made, with the alternatives that are left."""

    options: list[int]
    at: int = 0


@dataclass
class Chances:
    """A generator that follows one branch of the tree of choices; new forks take their first option."""

    trail: list[Fork]
    probability: float = 1.0
    tossed: bool = False
    _at: int = field(default=0, init=False)

    def pick(self, p: Sequence[float] | NDArray[np.float64]) -> int:
        """One position, by p."""
        if self._at == len(self.trail):
            self.trail.append(Fork([k for k, chance in enumerate(p) if chance > 0]))
        fork = self.trail[self._at]
        self._at += 1
        chosen = fork.options[fork.at]
        self.probability *= float(p[chosen])
        return chosen

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None, **other: Any) -> Any:
        """As numpy: without replacement one after another, each time by what p leaves."""
        options = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        weights = np.full(len(options), 1 / max(len(options), 1)) if p is None else _proper(np.asarray(p, dtype=float))
        if size is None:
            return options[self.pick(weights)]
        count = int(np.prod(size))
        if not replace and count > np.count_nonzero(weights):
            raise ValueError("Cannot take a larger sample than population when replace is False")
        chosen, left = [], weights.copy()
        for _ in range(count):
            chosen.append(self.pick(left / left.sum()))
            if not replace:
                left[chosen[-1]] = 0.0
        return options[chosen].reshape(size)

    def permutation(self, x: Any) -> Any:
        options = np.arange(x) if np.ndim(x) == 0 else np.asarray(x)
        return self.choice(options, len(options), replace=False)

    def shuffle(self, x: Any) -> None:
        x[:] = self.permutation(np.array(x))

    def integers(self, low: int, high: int | None = None, size: Any = None, endpoint: bool = False) -> Any:
        first, last = (0, low) if high is None else (low, high)
        return self.choice(np.arange(first, last + endpoint), size)

    def random(self, size: Any = None) -> Any:
        self.tossed = True
        return Coins(self, () if size is None else size)

    def __getattr__(self, name: str) -> Any:
        raise EndlessError(f"it calls rng.{name}")


class Coins:
    """Uniform numbers that may be compared with probabilities, and nothing else."""

    __array_ufunc__ = None  # so that numpy leaves `p > coins` to the method below

    def __init__(self, chances: Chances, shape: Any) -> None:
        self._chances, self._shape = chances, shape

    def _below(self, p: Any) -> Any:
        limits = np.broadcast_to(
            np.asarray(p, dtype=float), np.broadcast_shapes(np.shape(p), np.empty(self._shape).shape)
        )
        if ((limits < -SLACK) | (limits > 1 + SLACK) | np.isnan(limits)).any():
            raise ImproperError(f"a probability is outside of 0 .. 1: {_shown(limits)}")
        capped = np.clip(limits, 0.0, 1.0)
        tossed = [self._chances.pick([1 - limit, limit]) == 1 for limit in capped.ravel()]
        return tossed[0] if capped.ndim == 0 else np.array(tossed, dtype=bool).reshape(capped.shape)

    def _not_below(self, p: Any) -> Any:
        return np.logical_not(self._below(p))

    __lt__ = __le__ = _below
    __gt__ = __ge__ = _not_below

    def _continuous(self, *others: Any, **more: Any) -> Any:
        raise EndlessError("it uses continuous random numbers")

    __array__ = __getitem__ = __len__ = __iter__ = __float__ = _continuous
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _continuous
    __pow__ = __rpow__ = __neg__ = _continuous


def _proper(p: NDArray[np.float64]) -> NDArray[np.float64]:
    if (p < -SLACK).any() or np.isnan(p).any() or abs(float(p.sum()) - 1) > SLACK:
        raise ImproperError(f"the probabilities of a choice sum to {p.sum():.9g}: {_shown(p)}")
    return np.clip(p, 0.0, 1.0)


def _shown(p: NDArray[np.float64]) -> str:
    return ", ".join(f"{value:.4g}" for value in p.ravel()[:8])


@dataclass(frozen=True)
class Distribution(Generic[T]):
    """Outcomes with their probabilities: all of them, or many samples of equal weight."""

    outcomes: list[tuple[float, T]]
    exact: bool

    def mean(self, value: Callable[[T], NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The expectation, and how far it may be off: rounding, or five standard errors."""
        p = np.array([chance for chance, _ in self.outcomes])
        values = np.array([value(outcome) for _, outcome in self.outcomes])
        mean = np.einsum("i,i...->...", p, values)
        if self.exact:
            return mean, SLACK * (1 + np.abs(values).max(axis=0))
        return mean, 5 * values.std(axis=0) / np.sqrt(len(values)) + SLACK


def distribution(draw: Callable[[np.random.Generator], T]) -> Distribution[T]:
    """What `draw(rng)` may return, with which probability. It must not change anything."""
    try:
        return Distribution(_enumerated(draw), exact=True)
    except EndlessError:
        found = [(1 / SAMPLES, draw(stream(1, "conformance", k))) for k in range(SAMPLES)]
        return Distribution(found, exact=False)


def _enumerated(draw: Callable[[np.random.Generator], T]) -> list[tuple[float, T]]:
    trail: list[Fork] = []
    found: list[tuple[float, T]] = []
    while len(found) < MOST_BRANCHES:
        chances = Chances(trail)
        try:
            outcome = draw(cast(np.random.Generator, chances))
        except TypeError as error:
            if chances.tossed:  # some function of numpy was handed coins
                raise EndlessError(str(error)) from error
            raise
        found.append((chances.probability, outcome))
        while trail and trail[-1].at == len(trail[-1].options) - 1:
            trail.pop()
        if not trail:
            return found
        trail[-1].at += 1
    raise EndlessError("it has too many outcomes")
