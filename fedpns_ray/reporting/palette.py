"""How a line looks, in the terminal, on the page and in every picture: one colour, dash and marker per strategy.

The colours are Okabe and Ito's, which colour-blind readers can tell apart; their yellow, which disappears on paper, is
brown here. Dashes and markers tell lines apart where there is no colour at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8B5A2B")
ON_DARK = {"#0072B2": "#4BA3E0", "#000000": "#DDDDDD", "#8B5A2B": "#C08A5B"}
"""Lighter ones for a dark page."""
DASHES: dict[str, Any] = {
    "solid": "-", "dash": (0, (5, 1.6)), "dot": (0, (1.2, 1.2)), "dashdot": (0, (6, 1.4, 1.2, 1.4)),
    "longdash": (0, (9, 2)), "longdashdot": (0, (9, 1.6, 1.2, 1.6)),
}  # fmt: skip
"""The page's names for dashes, and matplotlib's."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
ORDER = (
    "fedpns", "fedavg", "bn2", "optimal-aggregation", "oort", "power-of-choice", "fedprox", "fedadp",
    "scaffold", "cmfl", "fedavgm", "fedadam", "fedcs", "norm-sampling", "fedavg-full", "fedyogi",
    "importance-latency", "optimal-sampling", "fedadagrad", "bc", "bc-bn2",
)  # fmt: skip
"""The strategies by their looks: the first eight have a colour each, the next eight the same ones, shifted."""
PUBLISHED: Any = (0, (1, 1.4))
"""The dash of the paper's own curves, which are thinner."""
FATES = ("#B9D4E6", "#E69F00", "#D55E00", "#CC79A7")
"""Drawn, labelled, excluded, excluded without having been labelled."""
IID, OTHER = COLOURS[0], COLOURS[1]
"""Nodes by the kind of their data."""


@dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    colour: str
    dash: str = "solid"
    """A key of DASHES."""
    marker: str = "o"
    band: bool = True

    @property
    def style(self) -> Any:
        """The dash in matplotlib's terms."""
        return DASHES[self.dash]

    @property
    def on_dark(self) -> str:
        return ON_DARK.get(self.colour, self.colour)


def _look(k: int) -> Look:
    """The k-th of 48 looks, all different; the first ones differ in everything."""
    turn, at = divmod(k, len(COLOURS))
    return Look(COLOURS[at], tuple(DASHES)[(at + turn) % len(DASHES)], MARKERS[(at + 3 * turn) % len(MARKERS)])


def looks(names: Iterable[str]) -> dict[str, Look]:
    """The look of every line. A strategy has its own; a line with another name takes the next that is free.

    `fedpns, alpha 2` takes its strategy's look if the strategy itself, or another line of it, has not taken it.
    """
    listed = list(dict.fromkeys(names))
    found: dict[str, Look] = {name: _look(ORDER.index(name)) for name in listed if name in ORDER}
    taken = [*found.values()]
    for name in listed:
        if name in found:
            continue
        strategy = name.partition(",")[0]
        own = [_look(ORDER.index(strategy))] if strategy in ORDER else []
        free = (look for look in (*own, *map(_look, range(48))) if look not in taken)
        found[name] = next(free, _look(len(found) % 48))
        taken.append(found[name])
    return {name: found[name] for name in listed}
