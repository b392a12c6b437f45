"""A user-defined availability: nodes take turns, in shifts of a few rounds.

    fedpns run --availability examples.own_availability:Shifts --set shifts=3
    fedpns compare --strategies fedpns,fedavg --availability examples.own_availability:Shifts

An availability makes the timetable of a run, which says when each node can next be drawn, not whether it can be now.
So a selection can look ahead: `probe.available` are this round's nodes, `probe.next_available()` says when others come.
"""

import numpy as np
from pydantic import Field

from fedpns_ray.core.availability import Availability


class Shifts(Availability):
    """Node i is there in shift i mod `shifts`; one shift follows another."""

    name = "shifts"
    shifts: int = Field(2, ge=1)
    """The number of shifts."""
    shift_rounds: int = Field(2, ge=1)
    """How many rounds a shift lasts."""

    def timetable(self, nodes, seed, labels):
        return Rota(np.arange(nodes.count) % self.shifts, self.shifts, self.shift_rounds)


class Rota:
    def __init__(self, own, shifts, rounds):
        self.own, self.shifts, self.rounds = own, shifts, rounds

    def next_rounds(self, round):
        shift = round // self.rounds
        wait = (self.own - shift) % self.shifts
        return np.where(wait == 0, round, (shift + wait) * self.rounds)
