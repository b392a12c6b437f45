"""Nodes that come and go at random, each as a Markov chain with two states."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedpns_ray.core.availability.interfaces import NEVER, CoupledAvailability, Labels
from fedpns_ray.core.interfaces import Nodes
from fedpns_ray.core.streams import stream

LEAST_SHARE = 0.01
"""The least share of rounds in which a node is available."""
MOST_AHEAD = 10_000
"""Rounds that are looked ahead for the return of a node."""


class Markov(CoupledAvailability):
    """A node stays for some rounds and leaves for some, both geometrically distributed; at first as in the long run."""

    name = "markov"
    online_share: float = Field(0.5, gt=0, le=1)
    """The share of rounds in which a node is available, in the long run and on average over nodes."""
    online_rounds: float = Field(5.0, ge=1)
    """How many rounds a node stays, on average; a node that is away even less than one round stays longer."""
    contrast: float = Field(0.5, ge=0, le=1)
    """How far nodes differ: their shares run from (1 - contrast) to (1 + contrast) times online_share, at most 1."""

    def timetable(self, nodes: Nodes, seed: int, labels: Labels) -> MarkovTimetable:
        share = self.online_share * (1 + self.contrast * (2 * self.ranks(nodes, seed, labels) - 1))
        return MarkovTimetable(seed, np.clip(share, LEAST_SHARE, 1.0), 1 / self.online_rounds)


class MarkovTimetable:
    """Every round's states follow from those of the round before and from the round's stream."""

    def __init__(self, seed: int, share: NDArray[np.float64], leaving: float) -> None:
        """`share`: the share of rounds in which each node is available; `leaving`: its probability to leave."""
        away = np.maximum(1 - share, np.finfo(float).tiny)
        self._comes = np.minimum(leaving * share / away, 1.0)  # share = comes / (comes + leaves)
        self._leaves = np.where(self._comes < 1, leaving, (1 - share) / share)
        self._seed, self._states = seed, {0: stream(seed, "availability", 0).random(len(share)) < share}

    def _at(self, round: int) -> NDArray[np.bool_]:
        last = round
        while last not in self._states:  # round 0 is always known; it is mostly a step or two
            last -= 1
        for t in range(last + 1, round + 1):
            tossed, before = stream(self._seed, "availability", t).random(len(self._comes)), self._states[t - 1]
            self._states[t] = np.where(before, tossed >= self._leaves, tossed < self._comes)
        return self._states[round]

    def next_rounds(self, round: int) -> NDArray[np.int64]:
        """The first round from this one on in which each node is available; NEVER if that is very far ahead."""
        for old in [known for known in self._states if 0 < known < round - 1]:
            del self._states[old]
        found = np.where(self._at(round), round, NEVER)
        for t in range(round + 1, round + MOST_AHEAD):
            if (found < NEVER).all():
                break
            found = np.where((found == NEVER) & self._at(t), t, found)
        return found
