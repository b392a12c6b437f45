"""A study as a picture: small multiples over rounds, one panel per setting of the data, one colour per line."""

from __future__ import annotations

import io
import itertools
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.record import Record
from fedpns_ray.registry import KINDS, known_parameters
from fedpns_ray.reporting.canvas import bare, panels
from fedpns_ray.reporting.colours import COLOURS
from fedpns_ray.reporting.published import published
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
STYLES: tuple[Any, ...] = ("-", ":", "-.")
"""When the colours are used up, they are reused with the next style; dashes are reserved for the paper's curves."""
BANDS = 5
"""The most lines in a picture that have bands: more bands would hide each other."""
ABREAST = 6
"""The most panels side by side."""


@dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    colour: str
    style: Any = "-"
    band: bool = True


def plot_study(results: Results) -> bytes:
    """The figure of a study, as PNG."""
    buffer = io.BytesIO()
    study_figure(results).savefig(buffer, dpi=130, format="png")
    return buffer.getvalue()


def study_figure(results: Results) -> Figure:
    """Lines are means over seeds, with 95 % bands for three or more seeds if lines are few; the paper's are dashed."""
    study, rows = results.study, results.done.to_dict("records")
    lines = line_axes(study)
    in_panel = [label_of(row, [key for key in study.axes if key not in lines]) for row in rows]
    names = list(dict.fromkeys(label_of(row, lines) for row in rows))
    many = len(names) > BANDS
    styles = itertools.cycle(itertools.product(STYLES, COLOURS))
    looks = {name: Look(colour, style, not many) for name, (style, colour) in zip(names, styles, strict=False)}
    titles, quantities = list(dict.fromkeys(in_panel)), results.shown
    across = min(len(titles), ABREAST) if len(titles) > 1 else len(quantities)
    block = -(-len(titles) // across) * across if len(titles) > 1 else 1  # cells per quantity
    down = -(-block * len(quantities) // across)
    size = max(3.1 * across, 9.0 if many else 4.6), (3.5 if many else 2.5) * down + 0.7
    figure, axes = panels(down, across, size)
    for axis in axes.flat:
        axis.set_visible(False)
    compared = False
    for (q, quantity), (k, title) in itertools.product(enumerate(quantities), enumerate(titles)):
        axis = axes.flat[q * block + k]
        axis.set_visible(True)
        axis.set(title=title, xlabel=OVER[study.plot.over], ylabel=quantity.label if k % across == 0 else "")
        compared |= _draw(axis, results, results.done[[name == title for name in in_panel]], quantity, looks)
    _legend(figure, looks, compared, max(across + 1, int(size[0] / 2)))
    title = textwrap.fill(study.title, int(9 * size[0]))
    figure.suptitle("\n".join(filter(None, [title, results.label])), fontsize=11)
    return figure


def _legend(figure: Figure, looks: dict[str, Look], compared: bool, most: int) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=look.colour, linestyle=look.style, label=label) for label, look in looks.items()]
    if compared:
        handles.append(Line2D([], [], color="grey", linestyle="--", linewidth=1, label="published"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), most), frameon=False)


def line_axes(study: Study) -> list[str]:
    """The axes told apart by colour: those that the study names, or the parts of the strategy, or the first axis."""
    parts = [key for key in study.axes if key in ("strategy", *KINDS)]
    return [key for key in study.plot.lines if key in study.axes] or parts or study.axes[:1]


def label_of(row: Any, keys: list[str]) -> str:
    """`fedpns, alpha 2`: what is not set (NaN) is left out."""
    return ", ".join(_named(key, row[key]) for key in keys if row.get(key) is not None and row[key] == row[key])


def _named(key: str, value: Any) -> str:
    if key in ("strategy", "model"):
        return str(value)
    return f"{key} {value:g}" if isinstance(value, (int, float)) else f"{key} {value}"


def _draw(axis: Any, results: Results, rows: pd.DataFrame, quantity: Quantity, looks: dict[str, Look]) -> bool:
    """Draw every line of a panel; returns whether one of them has a published curve."""
    compared, over = False, results.study.plot.over
    for _, group in rows.groupby("setting", sort=False):
        first = group.iloc[0].to_dict()
        look = looks[label_of(first, line_axes(results.study))]
        mine = results.curves[results.curves["trial"].isin(group["trial"])]
        last = draw_mean(axis, mine, quantity, look, over)
        if last and over == Record.round:
            compared |= draw_published(axis, experiment_of(first), quantity, look, last)
    finish(axis)
    return compared


def draw_mean(axis: Any, mine: pd.DataFrame, quantity: Quantity, look: Look, over: str = Record.round) -> int:
    """Draw the mean over the seeds of a setting, with its band; returns its last round (0: nothing to draw)."""
    if quantity.key not in mine:
        return 0
    wide = quantity.scale * _by_seed(mine, quantity.key).dropna()
    if wide.empty:
        return 0
    mean = wide.mean(axis=1)
    marker = "o" if len(mean) == 1 else None
    at = mean.index if over == Record.round else _spent(mine, over)[mean.index]
    axis.plot(at, mean, color=look.colour, linestyle=look.style, marker=marker, zorder=3)
    if look.band and wide.shape[1] > 2:
        half = np.array([interval(list(values)) for values in wide.to_numpy()])
        low, high = mean - half, mean + half
        if quantity.unit == "%":
            low, high = low.clip(lower=0), high.clip(upper=100)
        axis.fill_between(at, low, high, color=look.colour, alpha=0.18, linewidth=0)
    return int(mean.index.max())


def draw_published(axis: Any, experiment: Experiment, quantity: Quantity, look: Look, last: int) -> bool:
    """Draw the paper's curve as far as ours goes; returns whether there is one."""
    paper = published(experiment, quantity.key)
    if paper is None:
        return False
    paper = quantity.scale * paper[paper.index <= last]
    axis.plot(paper.index, paper, color=look.colour, linestyle=(0, (4, 1.5)), alpha=0.55, zorder=2)
    return True


def finish(axis: Any) -> None:
    """Fit the axis to the lines, not to a wide band."""
    axis.relim()
    axis.autoscale_view()
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
