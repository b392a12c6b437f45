"""Figures for papers, as PDF (text stays text) and PNG: those of any study, and the paper's own from its runs."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedpns_ray.atomic_file import replacing
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import setting_name
from fedpns_ray.records.record import CORE, FATES, Record
from fedpns_ray.records.summary import counts
from fedpns_ray.reporting.canvas import bare
from fedpns_ray.reporting.canvas import panels as panels_of
from fedpns_ray.reporting.collecting import Gathered
from fedpns_ray.reporting.colours import COLOURS
from fedpns_ray.reporting.curves import Look, draw_mean, draw_published, finish, label_of, line_axes, study_figure
from fedpns_ray.reporting.published import Panel, figures, published, triples
from fedpns_ray.reporting.tables import table
from fedpns_ray.reporting.targets import marked, refuse_foreign

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.5, 7.16
"""Inches: one column of a two-column paper, and both."""
STYLE = {
    "font.size": 7.5, "axes.titlesize": 7.5, "axes.labelsize": 7.5, "legend.fontsize": 7.5, "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5, "axes.linewidth": 0.6, "figure.titlesize": 8.5, "pdf.fonttype": 42,
    "lines.linewidth": 0.9,
}  # fmt: skip
"""Type 42: glyphs are embedded as a font, so text can be searched and is never a picture."""
PAPER_COLOURS = {
    "FedPNS": COLOURS[0], "Optimal Aggregation": COLOURS[0], "FedAvg": COLOURS[1], "BN2": COLOURS[2],
    "i.i.d.": COLOURS[5], "non-i.i.d.": COLOURS[3],
}  # fmt: skip
FATE_COLOURS = ("#b9d4e6", "#E69F00", "#D55E00")


def write_figures(gathered: Gathered, folder: Path) -> list[Path]:
    """Draw every figure that these runs have data for; returns the files written."""
    import matplotlib

    if folder.exists() and not folder.is_dir():
        raise InputError("figures", folder, problem="is a file", hint="name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        for name, draw in _possible(gathered).items():
            figure = draw(gathered)
            if gathered.label and name != "curves":  # whose title says it
                figure.supxlabel(gathered.label, fontsize=STYLE["xtick.labelsize"])
            for ending in ("pdf", "png"):
                path = folder / f"{name}.{ending}"
                refuse_foreign(path, f".{ending}", "figures")
                with replacing(path) as partial:
                    figure.savefig(partial, dpi=300, metadata=marked(ending))
                written.append(path)
    return written


def _possible(gathered: Gathered) -> dict[str, Callable[[Gathered], Figure]]:
    done = gathered.results.done
    if done.empty:
        raise InputError("figures", problem="no run is finished yet", hint="figures show finished runs only")
    found: dict[str, Callable[[Gathered], Figure]] = {}
    ours = set(done["setting"])
    for name, panels in figures().items():
        held = [[setting_name(experiment) in ours for _, experiment, _ in panel.curves] for panel in panels]
        if any(all(panel) for panel in held) and 2 * sum(map(sum, held)) >= sum(map(len, held)):
            found[name.replace("fig", "figure")] = partial(paper_figure, panels=panels, below=name == "fig1")
    found["curves"] = _curves
    if any(done[f"rounds_to_{target:g}"].notna().any() for target in gathered.study.targets):
        found["rounds-to-target"] = rounds_to_target
    if {"alpha", "beta"} <= set(gathered.study.axes):
        found["alpha-beta"] = alpha_beta
    if np.nansum(done[[f"{Record.labelled}_iid", f"{Record.labelled}_other"]].to_numpy(float)) > 0:
        found["triples"] = node_triples
    return found


# --- the paper's figures ---------------------------------------------------------------------------------------------


def paper_figure(gathered: Gathered, panels: list[Panel], below: bool) -> Figure:
    """A figure in the paper's own arrangement: our curves with bands, the published ones lighter and dashed.

    `below`: with the triples under it (Figure 1).
    """
    down, across = max(p.row for p in panels) + 1 + below, max(p.column for p in panels) + 1
    size = COLUMN if across == 1 else PAGE, (1.9 if across < 3 else 1.45) * down + 0.45
    figure, axes = panels_of(down, across, size)
    names = list(dict.fromkeys(curve for panel in panels for curve, _, _ in panel.curves))
    spare = iter([colour for colour in COLOURS if colour != PAPER_COLOURS["FedAvg"]])
    looks = {curve: Look(PAPER_COLOURS.get(curve) or next(spare)) for curve in names}
    for panel in panels:
        axis = axes[panel.row, panel.column]
        _draw_panel(axis, gathered, panel, looks)
        title = panel.title.replace(", ", "\n" if across > 3 else ", ", 1) if across > 1 else ""
        label = CORE[Record.test_loss].title if panel.curves[0][2] == Record.test_loss else panel.quantity
        axis.set(title=title, xlabel="round", ylabel=label if panel.column == 0 else "")
    if below:
        _draw_triples(axes[-1, 0], gathered, "optimal-aggregation", with_paper=True)
    _paper_legend(figure, looks, 3 if across == 1 else 7)
    return figure


def _draw_panel(axis: Any, gathered: Gathered, panel: Panel, looks: dict[str, Look]) -> None:
    results, last = gathered.results, 0
    curves = results.curves[results.curves["trial"].isin(results.done["trial"])]
    for curve, experiment, key in panel.curves:
        mine = curves[curves["setting"] == setting_name(experiment)]
        last = draw_mean(axis, mine, CORE[key], looks[curve])
        draw_published(axis, experiment, CORE[key], looks[curve], last or 10**9)
    finish(axis)
    axis.set_ylim(bottom=_floor(panel, last, axis.get_ylim()[0]))


def _paper_legend(figure: Figure, looks: dict[str, Look], most: int) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=look.colour, label=curve) for curve, look in looks.items()]
    handles.append(Line2D([], [], color="grey", linestyle="--", linewidth=1, alpha=0.7, label="published"))
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), most), frameon=False)


def _floor(panel: Panel, last: int, lowest: float) -> float:
    """Where the axis starts. Accuracies start where the paper's do: the last few points matter, not the climb."""
    curves = [published(experiment, key) for _, experiment, key in panel.curves if key == Record.test_accuracy]
    shown = [curve[curve.index <= (last or 10**9)].min() for curve in curves if curve is not None]
    return max(lowest, 100 * min(shown) - 2) if shown and not np.isnan(shown).any() else lowest


def _draw_triples(axis: Any, gathered: Gathered, strategy: str, with_paper: bool) -> None:
    """Draw how often each node was drawn, labelled and excluded: the mean over seeds of a strategy's first setting."""
    runs = [run for run in gathered.runs if run.finished and run.experiment.strategy == strategy]
    first = runs[0].experiment
    runs = [run for run in runs if run.experiment.but(seed=first.seed).settings() == first.settings()]
    nodes = np.arange(runs[0].experiment.nodes)
    paper = triples() if with_paper else None
    for fate, colour in zip(FATES, FATE_COLOURS, strict=True):
        found = [counts(run.summary, fate, len(nodes)) for run in runs if run.summary]
        times = np.mean([each for each in found if each is not None], axis=0)
        axis.bar(nodes, times, color=colour, width=0.9, label=fate)
        if paper is not None:
            axis.plot(paper.index, paper[fate], ".", color="black", markersize=2, alpha=0.6)
    if runs[0].iid_nodes:
        axis.axvline(runs[0].iid_nodes - 0.5, color="black", linewidth=0.6)
    dots = "; dots: published, one run" if with_paper else ""
    axis.set(xlabel=f"node (left of the line: i.i.d.){dots}", ylabel="times")
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    bare(axis)


# --- any study -------------------------------------------------------------------------------------------------------


def _curves(gathered: Gathered) -> Figure:
    figure = study_figure(gathered.results)
    scale = min(1.0, PAGE / figure.get_figwidth())
    width, height = figure.get_size_inches()
    figure.set_size_inches((width * scale, height * max(scale, 0.62)))
    if scale < 0.7:
        for axis in figure.axes:  # break between settings, not within one
            settings = [setting.replace(" ", "\N{NO-BREAK SPACE}") for setting in axis.get_title().split(", ")]
            axis.set_title(textwrap.fill(", ".join(settings), 15))
    return figure


def rounds_to_target(gathered: Gathered) -> Figure:
    """Bars: the mean over the seeds that reached a target; if not all did, their number is above the bar."""
    from matplotlib.patches import Patch

    study = gathered.study
    rows = table(gathered.results, gathered.trials)
    lines, records = line_axes(study), rows.to_dict("records")
    panel_axes = [axis for axis in study.axes if axis not in lines]
    places = list(dict.fromkeys(label_of(row, panel_axes) for row in records))
    names = list(dict.fromkeys(label_of(row, lines) for row in records))
    targets = [target for target in study.targets if rows[f"reached_{target:g}"].sum()]
    size = COLUMN if len(places) < 5 else PAGE, 1.9 * len(targets) + 0.6
    figure, axes = panels_of(len(targets), 1, size)
    by_place = {(label_of(row, panel_axes), label_of(row, lines)): row for row in records}
    for axis, target in zip(axes[:, 0], targets, strict=True):
        for (x, place), (k, name) in itertools.product(enumerate(places), enumerate(names)):
            row, width = by_place.get((place, name)), 0.8 / len(names)
            if row and row[f"reached_{target:g}"]:
                _bar(axis, row, target, x + (k - (len(names) - 1) / 2) * width, width, COLOURS[k % len(COLOURS)])
        axis.set(ylabel=f"rounds to {target:.0%}", xticks=range(len(places)), xlim=(-0.6, len(places) - 0.4))
        axis.set_xticklabels([place.replace(", ", "\n") for place in places])
        bare(axis)
    handles = [Patch(color=colour, label=name) for name, colour in zip(names, itertools.cycle(COLOURS), strict=False)]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)), frameon=False)
    return figure


def _bar(axis: Any, row: dict[Any, Any], target: float, x: float, width: float, colour: str) -> None:
    height, reached = row[f"rounds_to_{target:g}"], row[f"reached_{target:g}"]
    axis.bar(x, height, width * 0.92, color=colour)
    if reached < row["seeds"]:
        axis.text(x, height, f"{reached}/{row['seeds']}", ha="center", va="bottom", fontsize=5.5)


def alpha_beta(gathered: Gathered) -> Figure:
    """The final accuracy over alpha and beta, one map per setting of the other axes."""
    rows = table(gathered.results, gathered.trials).dropna(subset=["alpha", "beta"])
    others = [axis for axis in gathered.study.axes if axis not in ("alpha", "beta", "strategy")]
    groups: dict[str, list[dict[Any, Any]]] = {}
    for row in rows.to_dict("records"):
        groups.setdefault(label_of(row, others), []).append(row)
    across = min(len(groups), 3)
    down = -(-len(groups) // across)
    figure, axes = panels_of(down, across, (COLUMN if across == 1 else PAGE, 2.1 * down + 0.3))
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, (title, found) in zip(axes.flat, groups.items(), strict=False):
        grid = pd.DataFrame(found).pivot_table(index="alpha", columns="beta", values=Record.test_accuracy) * 100
        image = axis.imshow(grid, cmap="viridis", aspect="auto", origin="lower")
        for (i, j), value in np.ndenumerate(grid.to_numpy()):
            if value == value:
                middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
                axis.text(j, i, f"{value:.1f}", ha="center", va="center", color="black" if value > middle else "white")
        axis.set(title=title, xlabel="β", ylabel="α", xticks=range(grid.shape[1]), yticks=range(grid.shape[0]))
        axis.set_xticklabels([f"{beta:g}" for beta in grid.columns])
        axis.set_yticklabels([f"{alpha:g}" for alpha in grid.index])
        figure.colorbar(image, ax=axis, label="final accuracy (%)")
    return figure


def node_triples(gathered: Gathered) -> Figure:
    """Every node's triple (drawn, labelled, excluded), for the first setting of each strategy that labels nodes."""
    labelling = [
        run.experiment.strategy
        for run in gathered.runs
        if run.finished and run.summary and np.any(counts(run.summary, Record.labelled, run.experiment.nodes))
    ]
    strategies = list(dict.fromkeys(labelling))
    figure, axes = panels_of(len(strategies), 1, (COLUMN, 2.1 * len(strategies)))
    for axis, strategy in zip(axes[:, 0], strategies, strict=True):
        _draw_triples(axis, gathered, strategy, with_paper=False)
        axis.set_title(strategy, loc="left")
    return figure
