"""The harness: what is compared, measured in turn in one run, as ratios with their spread.

An entry measures several sides in every repeat, one after the other, and says what each took. A figure is one side over
another within a repeat, so that both saw the same machine; of all repeats the median counts, and the lowest and the
highest are its spread.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Costs = Mapping[str, float]
"""What each side took in one repeat: seconds, unless a figure says otherwise."""


class Unavailable(Exception):
    """An entry, or one side of it, that cannot be measured here, and why."""


@dataclass(frozen=True)
class Figure:
    """One side over another."""

    name: str
    over: str
    under: str
    at_least: float | None = None
    at_most: float | None = None
    """The goal; a figure without one is for information, and lower is better."""
    unit: str = ""
    """Of the difference of both sides, where that is what counts; empty: their ratio."""
    at: float = 0
    """Where this figure lies on the curve that its name without its last word names; 0: on none."""

    def of(self, costs: Costs) -> float:
        return costs[self.over] - costs[self.under] if self.unit else costs[self.over] / costs[self.under]

    @property
    def goal(self) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"


@dataclass(frozen=True)
class Setting:
    """How an entry is to be measured."""

    repeats: int
    full: bool = False
    """The sizes that goals are stated for, where the usual ones are smaller."""
    clock: str = "seconds"
    """seconds, or cpu: seconds of a core, for sides of one process on a busy machine."""
    base: str = "7f877ab"
    """The commit that this tree is compared with."""
    say: Callable[[str], None] = print


@dataclass(frozen=True)
class Entry:
    """One benchmark."""

    name: str
    what: str
    figures: tuple[Figure, ...]
    measure: Callable[[Setting], Iterator[Costs]]
    """Yields what all sides took, once per repeat. A side that could not be had is left out."""
    repeats: int = 5
    usual: bool = True
    """Whether it runs when no entry is named."""
    by_cpu: bool = False
    """Whether every side is one process, so that seconds of a core mean something."""


def summarised(figure: Figure, costs: list[Costs]) -> dict[str, Any]:
    """The figure over all repeats, as ratios.json holds it."""
    values = [figure.of(each) for each in costs]
    sides = {"over": statistics.median(each[figure.over] for each in costs)}
    sides["under"] = statistics.median(each[figure.under] for each in costs)
    found = {"median": statistics.median(values), "low": min(values), "high": max(values), **sides}
    rest = {"repeats": len(values), "goal": figure.goal, "unit": figure.unit, "at": figure.at}
    return {key: float(f"{value:.4g}") for key, value in found.items()} | {k: v for k, v in rest.items() if v}


def measured(entry: Entry, setting: Setting) -> dict[str, Any]:
    """Run an entry; its figures by name. Raises Unavailable if there are none."""
    costs: list[Costs] = []
    for each in entry.measure(setting):
        costs.append(each)
        shown = (
            f"{figure.name} {figure.of(each):.3g}{figure.unit and ' ' + figure.unit}" for figure in had(entry, each)
        )
        setting.say(f"    {len(costs)}/{setting.repeats}: {', '.join(shown)}")
    if not costs or not had(entry, costs[0]):
        raise Unavailable("no side could be measured")
    return {figure.name: summarised(figure, costs) for figure in had(entry, costs[0])}


def had(entry: Entry, costs: Costs) -> list[Figure]:
    """The figures whose sides were measured."""
    return [figure for figure in entry.figures if figure.over in costs and figure.under in costs]


def in_turn(sides: Mapping[str, Callable[[], float]], repeats: int) -> Iterator[Costs]:
    """Measure every side once per repeat, in turn: there and back, so that none is always first."""
    names = list(sides)
    for repeat in range(repeats):
        found = {name: sides[name]() for name in (names if repeat % 2 == 0 else names[::-1])}
        yield {name: found[name] for name in names}
