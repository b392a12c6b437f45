"""A study as a picture: small multiples over rounds, one panel a setting of the data, one colour a line."""

from __future__ import annotations

import io
import itertools
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedpns_ray.experiment import Experiment, drop_idle
from fedpns_ray.reporting.colours import COLOURS
from fedpns_ray.reporting.published import published
from fedpns_ray.reporting.statistics import interval
from fedpns_ray.reporting.tables import Results
from fedpns_ray.strategies import KINDS, known_parameters
from fedpns_ray.study.study_file import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXIS_TITLES = {
    "test_accuracy": "test accuracy (%)",
    "test_loss": "test loss",
    "train_loss": "training loss",
    "iid_probability": "probability of i.i.d. nodes",
    "expectation": "expectation of Lemma 1",
    "expectation_after": "expectation of Lemma 1, after exclusion",
    "delta": "delta (Assumption 2)",
    "gamma_selected": "sum of p_i gamma_i (Remark 1)",
    "gamma_mean": "mean of gamma_i (Remark 1)",
    "gradient_norm_iid": "gradient norm, i.i.d. nodes",
    "gradient_norm_other": "gradient norm, other nodes",
    "gradient_norm_of_mean": "norm of the mean gradient",
    "weight_divergence": "weight divergence ‖w - v‖",
}
OVER = {
    "round": "round",
    "simulated_seconds": "simulated seconds",
    "bytes_up": "bytes sent by nodes",
    "bytes_down": "bytes sent to nodes",
}
STYLES: tuple[Any, ...] = ("-", ":", "-.")
"""When the colours are used up, they begin again with the next of these; dashes are the paper's."""
SCALES = {"test_accuracy": 100.0}
BANDS = 5
"""Lines in a picture up to which each has its band: more of them hide each other."""
ABREAST = 6
"""Panels side by side at most."""


def plot_study(results: Results) -> bytes:
    """PNG."""
    import matplotlib.pyplot as plt

    figure = study_figure(results)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=130, format="png")
    plt.close(figure)
    return buffer.getvalue()


def study_figure(results: Results) -> Figure:
    """Lines are means over seeds, with a 95 % band from three seeds on where lines are few; the paper's curves are lighter, dashed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    study, done = results.study, results.trials[results.trials["status"] == "done"]
    lines = line_axes(study)
    in_panel = [label_of(row, [key for key in study.axes if key not in lines]) for row in done.to_dict("records")]
    in_line = [label_of(row, lines) for row in done.to_dict("records")]
    colours = dict(zip(dict.fromkeys(in_line), itertools.cycle(itertools.product(STYLES, COLOURS)), strict=False))
    panels, quantities = list(dict.fromkeys(in_panel)), study.plot.quantities
    across = min(len(panels), ABREAST) if len(panels) > 1 else len(quantities)
    block = -(-len(panels) // across) * across if len(panels) > 1 else 1  # cells a quantity
    down = -(-block * len(quantities) // across)
    many = len(colours) > BANDS
    size = max(3.1 * across, 9.0 if many else 4.6), (3.5 if many else 2.5) * down + 0.7
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat:
        axis.set_visible(False)
    compared = False
    for (q, quantity), (k, panel) in itertools.product(enumerate(quantities), enumerate(panels)):
        axis = axes.flat[q * block + k]
        axis.set_visible(True)
        axis.set(title=panel, xlabel=OVER[study.plot.over], ylabel=AXIS_TITLES[quantity] if k % across == 0 else "")
        rows = done[[name == panel for name in in_panel]]
        compared |= _draw(axis, rows, results.curves, quantity, lines, colours, study.plot.over)
    handles = [Line2D([], [], color=c, linestyle=style, label=label) for label, (style, c) in colours.items()]
    if compared:
        handles.append(Line2D([], [], color="grey", linestyle="--", linewidth=1, label="published"))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), max(across + 1, int(size[0] / 2))),
        frameon=False,
    )
    figure.suptitle(textwrap.fill(study.title, int(9 * size[0])), fontsize=11)
    return figure


def line_axes(study: Study) -> list[str]:
    """The axes told apart by colour: those that the study names, or else the parts of the strategy, or the first one."""
    parts = [key for key in study.axes if key in ("strategy", *KINDS)]
    return [key for key in study.plot.lines if key in study.axes] or parts or study.axes[:1]


def label_of(row: Any, keys: list[str]) -> str:
    """`fedpns, alpha 2`: what is not set (NaN) is left out."""
    return ", ".join(_named(key, row[key]) for key in keys if row.get(key) is not None and row[key] == row[key])


def _named(key: str, value: Any) -> str:
    if key in ("strategy", "model"):
        return str(value)
    return f"{key} {value:g}" if isinstance(value, (int, float)) else f"{key} {value}"


def _draw(
    axis: Any,
    rows: pd.DataFrame,
    curves: pd.DataFrame,
    quantity: str,
    lines: list[str],
    colours: dict[str, tuple[Any, str]],
    over: str,
) -> bool:
    """Every line of a panel; says whether there was one of the paper's."""
    compared = False
    for _, group in rows.groupby("setting", sort=False):
        first = group.iloc[0].to_dict()
        style, colour = colours[label_of(first, lines)]
        mine = curves[curves["trial"].isin(group["trial"])]
        last = draw_mean(axis, mine, quantity, colour, style, over, band=len(colours) <= BANDS)
        if last and over == "round":
            compared |= draw_published(axis, experiment_of(first), quantity, colour, last)
    finish(axis)
    return compared


def draw_mean(
    axis: Any,
    mine: pd.DataFrame,
    quantity: str,
    colour: str,
    style: Any = "-",
    over: str = "round",
    band: bool = True,
) -> int:
    """The mean over the seeds of a setting, with its band; says in which round it ends (0: nothing to draw)."""
    wide = SCALES.get(quantity, 1) * mine.pivot(index="round", columns="seed", values=quantity).astype(float).dropna()
    if wide.empty:
        return 0
    mean = wide.mean(axis=1)
    marker = "o" if len(mean) == 1 else None
    at = mean.index if over == "round" else _spent(mine, over)[mean.index]
    axis.plot(at, mean, color=colour, linestyle=style, marker=marker, zorder=3)
    if band and wide.shape[1] > 2:
        half = np.array([interval(list(values)) for values in wide.to_numpy()])
        low, high = mean - half, mean + half
        if quantity == "test_accuracy":
            low, high = low.clip(lower=0), high.clip(upper=100)
        axis.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
    return int(mean.index.max())


def draw_published(axis: Any, experiment: Experiment, quantity: str, colour: str, last: int) -> bool:
    """The paper's curve as far as ours goes; says whether there is one."""
    paper = published(experiment, quantity)
    if paper is None:
        return False
    paper = SCALES.get(quantity, 1) * paper[paper.index <= last]
    axis.plot(paper.index, paper, color=colour, linestyle=(0, (4, 1.5)), alpha=0.55, zorder=2)
    return True


def finish(axis: Any) -> None:
    """The axis shows the range of the lines, not of a wide band."""
    axis.relim()
    axis.autoscale_view()
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def _spent(curves: pd.DataFrame, key: str) -> Any:
    """Round → what was spent up to then, the mean over seeds."""
    return curves.pivot(index="round", columns="seed", values=key).astype(float).cumsum().mean(axis=1)


def experiment_of(row: dict[Any, Any]) -> Experiment:
    """The experiment of a row of study.csv."""
    known = (*Experiment.model_fields, *known_parameters())
    settings = {k: v for k, v in row.items() if k in known and v is not None and v == v}
    return Experiment.recorded(drop_idle(settings, importing=False))
