"""A study as a picture over rounds: a panel per setting of the data, or per strategy where those are many.

Every line has the colour, dash and marker of its strategy and its name at its end, so that greyscale is enough.
"""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.record import Record
from fedpns_ray.registry import KINDS, known_parameters
from fedpns_ray.reporting.canvas import bare, name_lines, panels
from fedpns_ray.reporting.names import in_words
from fedpns_ray.reporting.palette import PUBLISHED, Look, looks
from fedpns_ray.reporting.published import published
from fedpns_ray.reporting.series import bounds
from fedpns_ray.reporting.statistics import interval
from fedpns_ray.reporting.tables import Results
from fedpns_ray.settings import drop_idle
from fedpns_ray.study.study_file import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVER = {
    Record.round: "round",
    Record.simulated_seconds: "simulated seconds",
    Record.bytes_up: "bytes sent by nodes",
    Record.bytes_down: "bytes sent to nodes",
}
BANDS = 5
"""The most lines in a panel that have bands: more bands would hide each other."""
MOST_LINES = 6
"""The most lines in a panel: with more, every line gets a panel of its own, the others in grey behind it."""
ABREAST = 6
"""The most panels side by side."""
MARKS = 6
"""Markers on a line."""
REFERENCE, FIELD = Look("0.3", "dash", ""), Look("0.82", "solid", "")
"""Where every line has a panel of its own: how the baseline looks in those of the others, and how all else does."""


@dataclass(frozen=True)
class Sheet:
    """How large a picture may be, in inches, and whether it carries its title."""

    width: float | None = None
    """None: as wide as its panels need."""
    abreast: int = ABREAST
    title: bool = True


def plot_study(results: Results) -> bytes:
    """The figure of a study, as PNG."""
    buffer = io.BytesIO()
    study_figure(results).savefig(buffer, dpi=130, format="png")
    return buffer.getvalue()


def study_figure(results: Results, sheet: Sheet | None = None) -> Figure:
    """Lines are means over seeds, with 95 % bands for three or more seeds if lines are few; the paper's are dotted."""
    sheet = sheet or Sheet()
    rows = results.done.to_dict("records")
    keys = line_axes(results.study)
    others = [key for key in results.study.axes if key not in keys]
    named = {in_words(row, keys): in_words(row, keys, symbols=True) for row in rows}
    places = list(dict.fromkeys(in_words(row, others, symbols=True) for row in rows))
    look = {name: replace(one, band=len(named) <= BANDS) for name, one in looks(named).items()}
    if len(named) > MOST_LINES and len(places) == 1:
        return _multiples(results, look, named, sheet)
    figure, grid = _grid(len(places), results, sheet)
    compared, unnamed = False, set(named)
    in_place = [in_words(row, others, symbols=True) for row in rows]
    for (q, quantity), (k, place) in itertools.product(enumerate(results.shown), enumerate(places)):
        axis, first, last = grid(q, k)
        axis.set(
            title=_wrapped(place, axis), xlabel=OVER[results.study.plot.over], ylabel=quantity.label if first else ""
        )
        here = results.done[[name == place for name in in_place]]
        drawn = _draw(axis, results, here, quantity, look)
        compared |= drawn.compared
        if last and len(drawn.ends) <= MOST_LINES:
            name_lines(axis, [(named[name], end, look[name].colour) for name, end in drawn.ends.items()])
            unnamed -= set(drawn.ends)
    lines = {named[name]: look[name] for name in named} if unnamed else {}
    _explain(figure, compared, _title(results, sheet, figure), lines)
    return figure


def _wrapped(title: str, axis: Any) -> str:
    """A long title takes several lines: it must not run into that of the next panel."""
    inches, letter = axis.get_position().width * axis.figure.get_figwidth(), 0.52 * axis.title.get_fontsize() / 72
    return textwrap.fill(title, int(inches / letter))


def _grid(count: int, results: Results, sheet: Sheet) -> tuple[Figure, Any]:
    """Axes by quantity and panel, and whether each is the first or the last in its row."""
    quantities = len(results.shown)
    across = min(count, sheet.abreast) if count > 1 else min(quantities, sheet.abreast)
    block = -(-count // across) * across if count > 1 else 1  # cells per quantity
    down = -(-block * quantities // across)
    width = sheet.width or max(2.7 * across + 1.2, 5.5)
    each = min(2.6, max(1.5, 0.8 * width / across)) if sheet.width else 2.5
    figure, axes = panels(down, across, (width, each * down + 0.5))
    for axis in axes.flat:
        axis.set_visible(False)

    def cell(q: int, k: int) -> tuple[Any, bool, bool]:
        at = q * block + k
        axes.flat[at].set_visible(True)
        alone = count == 1
        return axes.flat[at], alone or k % across == 0, alone or k == count - 1 or at % across == across - 1

    return figure, cell


def _multiples(results: Results, look: dict[str, Look], named: dict[str, str], sheet: Sheet) -> Figure:
    """A panel per line, best first: the baseline dashed, the others in grey behind it.

    Nobody can follow sixteen crossing lines.
    """
    quantity, over = results.shown[0], results.study.plot.over
    keys, groups, baseline = line_axes(results.study), dict[str, pd.DataFrame](), ""
    for _, group in results.done.groupby("setting", sort=False):
        mine = results.curves[results.curves["trial"].isin(group["trial"])]
        first = group.iloc[0].to_dict()
        groups[in_words(first, keys)] = mine
        if all(first.get(key) == value for key, value in results.study.baseline.items()):
            baseline = in_words(first, keys)
    means = {name: line for name, mine in groups.items() if (line := mean_of(mine, quantity, over)) is not None}
    finals = {name: float(line.value.iloc[-5:].mean()) for name, line in means.items()}
    order = sorted(finals, key=lambda name: finals[name], reverse=quantity.better != "lower")
    across = min(len(order), 3 if sheet.width and sheet.width < 5 else 6)
    down = -(-len(order) // across)
    width = sheet.width or 2.0 * across
    figure, axes = panels(down, across, (width, 1.05 * width / across * down + 0.6), sharex=True, sharey=True)
    for axis in axes.flat[len(order) :]:
        axis.set_visible(False)
    for axis in axes.flat[max(0, len(order) - across) : len(order)]:  # the last in its column
        axis.xaxis.set_tick_params(labelbottom=True)
    for k, (axis, name) in enumerate(zip(axes.flat, order, strict=False)):
        for other, line in means.items():
            if other != name:
                one, width = (REFERENCE, 0.9) if other == baseline else (FIELD, 0.5)
                axis.plot(line.at, line.value, color=one.colour, linestyle=one.style, linewidth=width, zorder=1 + width)
        draw_mean(axis, groups[name], quantity, replace(look[name], dash="solid", band=True), over)
        final = f"{finals[name]:.2f} %" if quantity.unit == "%" else f"{finals[name]:.4g}"
        axis.set_title(f"{k + 1}. {named[name]}\n{final}", color=look[name].colour, fontsize="small")
        finish(axis)
    _focus(axes.flat[0], [line.value for line in means.values()])
    dashed = f"dashed: {named[baseline]}; " if baseline else ""
    figure.supxlabel(f"{OVER[over]} ({dashed}grey: all others)")
    figure.supylabel(quantity.label)
    _explain(figure, False, _title(results, sheet, figure), {})
    return figure


def _focus(axis: Any, lines: Sequence[pd.Series[float]]) -> None:
    """Leave out most of the first rounds, in which lines differ least; every line's end is seen."""
    pooled, ends = pd.concat(lines), [float(line.iloc[-1]) for line in lines]
    low, high = (f(float(pooled.quantile(q)), f(ends)) for f, q in ((min, 0.1), (max, 1.0)))
    if high > low:
        axis.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))


def _title(results: Results, sheet: Sheet, figure: Figure) -> str:
    title = textwrap.fill(results.study.title, int(9 * figure.get_figwidth())) if sheet.title else ""
    return "\n".join(filter(None, [title, results.label]))


def _explain(figure: Figure, compared: bool, title: str, lines: dict[str, Look]) -> None:
    """Below the panels, so that it covers nothing: the lines that are not named where they end."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=one.colour, linestyle=one.style, marker=one.marker, markersize=3, label=name)
        for name, one in lines.items()
    ]
    if compared:
        handles.append(Line2D([], [], color="0.4", linestyle=PUBLISHED, linewidth=1, label="published"))
    if handles:
        most = max(1, int(figure.get_figwidth() / 1.6))
        place: Any = "outside lower center" if lines else "outside lower right"
        figure.legend(handles=handles, loc=place, ncols=min(len(handles), most), frameon=False)
    if title:
        figure.suptitle(title, fontsize=11)


@dataclass(frozen=True)
class Drawn:
    """What a panel shows."""

    compared: bool
    """Whether it has a published curve."""
    ends: dict[str, tuple[float, float]]
    """Where every line ends."""


@dataclass(frozen=True)
class Line:
    """A mean over seeds."""

    at: Any
    value: pd.Series[float]
    wide: pd.DataFrame
    """One column per seed."""


def line_axes(study: Study) -> list[str]:
    """The axes told apart by colour: those that the study names, or the parts of the strategy, or the first axis."""
    parts = [key for key in study.axes if key in ("strategy", *KINDS)]
    return [key for key in study.plot.lines if key in study.axes] or parts or study.axes[:1]


def _draw(axis: Any, results: Results, rows: pd.DataFrame, quantity: Quantity, look: dict[str, Look]) -> Drawn:
    """Draw every line of a panel."""
    compared, over, ends = False, results.study.plot.over, dict[str, tuple[float, float]]()
    for _, group in rows.groupby("setting", sort=False):
        first = group.iloc[0].to_dict()
        name = in_words(first, line_axes(results.study))
        mine = results.curves[results.curves["trial"].isin(group["trial"])]
        if end := draw_mean(axis, mine, quantity, look[name], over):
            ends[name] = end
            if over == Record.round:
                compared |= draw_published(axis, experiment_of(first), quantity, look[name], int(end[0]))
    finish(axis)
    return Drawn(compared, ends)


def mean_of(mine: pd.DataFrame, quantity: Quantity, over: str = Record.round) -> Line | None:
    """The mean over the seeds of a setting; None if they have no such quantity."""
    if quantity.key not in mine:
        return None
    wide = quantity.scale * _by_seed(mine, quantity.key).dropna()
    if wide.empty:
        return None
    mean = wide.mean(axis=1)
    return Line(mean.index if over == Record.round else _spent(mine, over)[mean.index], mean, wide)


def draw_mean(
    axis: Any, mine: pd.DataFrame, quantity: Quantity, look: Look, over: str = Record.round
) -> tuple[float, float] | None:
    """Draw the mean over the seeds of a setting, with its band; returns where it ends (None: nothing to draw)."""
    line = mean_of(mine, quantity, over)
    if line is None:
        return None
    mean, at = line.value, line.at
    often = max(1, len(mean) // MARKS)
    shift = "os^DvPX*".index(look.marker) * often // 8  # markers of lines that coincide lie beside each other
    size = min(3.0, 0.8 * axis.figure.get_figwidth() / axis.get_subplotspec().get_gridspec().ncols + 1)
    axis.plot(
        at, mean, color=look.colour, linestyle=look.style, zorder=3, marker=look.marker, markersize=size,
        markevery=(min(shift, len(mean) - 1), often),
    )  # fmt: skip
    if look.band and line.wide.shape[1] > 2:
        half = np.array([interval(list(values)) for values in line.wide.to_numpy()])
        low, high = bounds(quantity)
        axis.fill_between(
            at, (mean - half).clip(lower=low), (mean + half).clip(upper=high),
            color=look.colour, alpha=0.16, linewidth=0,
        )  # fmt: skip
    return float(np.asarray(at)[-1]), float(mean.iloc[-1])


def draw_published(axis: Any, experiment: Experiment, quantity: Quantity, look: Look, last: int) -> bool:
    """Draw the paper's curve as far as ours goes; returns whether there is one."""
    paper = published(experiment, quantity.key)
    if paper is None:
        return False
    paper = quantity.scale * paper[paper.index <= last]
    axis.plot(paper.index, paper, color=look.colour, linestyle=PUBLISHED, linewidth=1, alpha=0.75, zorder=2)
    return True


def finish(axis: Any) -> None:
    """Fit the axis to the lines, not to a wide band."""
    axis.relim()
    axis.autoscale_view()
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.25)
    bare(axis)


def _by_seed(curves: pd.DataFrame, key: str) -> pd.DataFrame:
    return curves.pivot(index=Record.round, columns="seed", values=key).astype(float)


def _spent(curves: pd.DataFrame, key: str) -> Any:
    """Round → the cost up to then, as the mean over seeds."""
    return _by_seed(curves, key).cumsum().mean(axis=1)


def experiment_of(row: dict[Any, Any]) -> Experiment:
    """The experiment of a row of study.csv."""
    known = (*Experiment.model_fields, *known_parameters())
    settings = {k: v for k, v in row.items() if k in known and v is not None and v == v}
    return Experiment.recorded(drop_idle(settings, importing=False))
