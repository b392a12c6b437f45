"""The paper's own figures, in its arrangement, from our runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedpns_ray.naming import setting_name
from fedpns_ray.records.record import CORE, FATES, Record
from fedpns_ray.reporting.canvas import COLUMN, PAGE, bare, name_lines
from fedpns_ray.reporting.canvas import panels as panels_of
from fedpns_ray.reporting.curves import draw_mean, draw_published, finish
from fedpns_ray.reporting.palette import FATES as FATE_COLOURS
from fedpns_ray.reporting.palette import IID, OTHER, PUBLISHED, Look, looks
from fedpns_ray.reporting.published import STRATEGIES, Panel, published, triples
from fedpns_ray.reporting.tables import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLIMB = 0.12
"""The first part of the rounds, whose accuracies need not be seen."""
KINDS_OF_NODES = {"i.i.d.": Look(IID), "non-i.i.d.": Look(OTHER, "dash", "s")}


def paper_figure(results: Results, panels: list[Panel], below: Triples | None = None) -> Figure:
    """A figure in the paper's own arrangement: our curves with bands, the published ones thinner and dotted.

    `below`: the triples under it (Figure 1).
    """
    down, across = max(p.row for p in panels) + 1 + bool(below), max(p.column for p in panels) + 1
    size = COLUMN if across == 1 else PAGE, (1.9 if across < 3 else 1.45) * down + 0.45
    figure, axes = panels_of(down, across, size)
    look = _paper_looks(list(dict.fromkeys(curve for panel in panels for curve, _, _ in panel.curves)))
    for panel in panels:
        axis = axes[panel.row, panel.column]
        ends = _draw_panel(axis, results, panel, look)
        title = panel.title.replace(", ", "\n" if across > 3 else ", ", 1) if across > 1 else ""
        label = CORE[Record.test_loss].title if panel.curves[0][2] == Record.test_loss else panel.quantity
        axis.set(title=title, xlabel="round", ylabel=label if panel.column == 0 else "")
        if panel.column == max(p.column for p in panels if p.row == panel.row):
            name_lines(axis, [(_spaced(curve), end, look[curve].colour) for curve, end in ends.items()])
    if below:
        draw_triples(axes[-1, 0], below, triples())
    _paper_legend(figure, look)
    return figure


def _paper_looks(curves: list[str]) -> dict[str, Look]:
    """The look of every curve of a figure, by its name in the paper."""
    names = {curve: STRATEGIES.get(curve, f"fedpns, {curve}") for curve in curves if curve not in KINDS_OF_NODES}
    found = looks(names.values())
    return {curve: KINDS_OF_NODES[curve] if curve in KINDS_OF_NODES else found[names[curve]] for curve in curves}


def _spaced(curve: str) -> str:
    """`β = 0.7, α = 2`."""
    return curve.replace("=", " = ").replace(",", ", ")


def _draw_panel(axis: Any, results: Results, panel: Panel, look: dict[str, Look]) -> dict[str, tuple[float, float]]:
    """Our curves and the published ones; returns where ours end."""
    ends = dict[str, tuple[float, float]]()
    curves = results.curves[results.curves["trial"].isin(results.done["trial"])]
    for curve, experiment, key in panel.curves:
        mine = curves[curves["setting"] == setting_name(experiment)]
        if end := draw_mean(axis, mine, CORE[key], look[curve]):
            ends[curve] = end
        draw_published(axis, experiment, CORE[key], look[curve], int(end[0]) if end else 10**9)
    finish(axis)
    last = max((int(end[0]) for end in ends.values()), default=0)
    axis.set_ylim(bottom=_floor(panel, last, axis.get_ylim()[0]))
    return ends


def _paper_legend(figure: Figure, look: dict[str, Look]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=one.colour, linestyle=one.style, marker=one.marker, markersize=3, label=_spaced(curve))
        for curve, one in look.items()
    ]
    handles.append(Line2D([], [], color="0.4", linestyle=PUBLISHED, linewidth=1, label="published"))
    longest = max(len(_spaced(curve)) for curve in [*look, "published"])
    most = int(72 * figure.get_figwidth() / (4.6 * longest + 36))  # points that an entry takes
    figure.legend(handles=handles, loc="outside upper center", ncols=max(1, min(len(handles), most)), frameon=False)


def _floor(panel: Panel, last: int, lowest: float) -> float:
    """Where the axis starts. Accuracies start after the paper's first climb: the last few points matter."""
    curves = [published(experiment, key) for _, experiment, key in panel.curves if key == Record.test_accuracy]
    ends = [curve[curve.index <= (last or 10**9)] for curve in curves if curve is not None]
    shown = [curve[curve.index >= CLIMB * curve.index.max()].min() for curve in ends]
    return max(lowest, 100 * min(shown) - 2) if shown and not np.isnan(shown).any() else lowest


@dataclass(frozen=True)
class Triples:
    """How often each node was drawn, labelled and excluded."""

    times: Mapping[str, Any]
    """Fate → a number per node, the mean over seeds."""
    iid: int
    """Nodes with i.i.d. data; they come first."""


def draw_triples(axis: Any, found: Triples, paper: pd.DataFrame | None = None) -> None:
    """Bars for our nodes, dots for those of the paper."""
    for k, (fate, colour) in enumerate(zip(FATES, FATE_COLOURS, strict=False)):
        times = found.times[fate]
        axis.bar(np.arange(len(times)), times, color=colour, width=0.9 - 0.3 * k, label=fate)
        if paper is not None:
            axis.plot(paper.index, paper[fate], ".", color="black", markersize=2, alpha=0.6)
    if found.iid:
        axis.axvline(found.iid - 0.5, color="black", linewidth=0.6)
    dots = "; dots: published, one run" if paper is not None else ""
    axis.set(xlabel=f"node (left of the line: i.i.d.){dots}", ylabel="times")
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, borderaxespad=0, columnspacing=1)
    bare(axis)
