"""Figures for papers, as PDF (text stays text) and PNG: the paper's own where its runs are there, and those of any study."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedpns_ray.errors import InputError
from fedpns_ray.experiment import setting_name
from fedpns_ray.reporting.collecting import Gathered
from fedpns_ray.reporting.colours import COLOURS
from fedpns_ray.reporting.curves import (
    AXIS_TITLES,
    draw_mean,
    draw_published,
    finish,
    label_of,
    line_axes,
    study_figure,
)
from fedpns_ray.reporting.published import Panel, figures, published, triples
from fedpns_ray.reporting.tables import FATES, table

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
    """Every figure that these runs can fill; says which files it wrote."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    if folder.exists() and not folder.is_dir():
        raise InputError(f"figures: {folder} is a file; name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with plt.rc_context(STYLE):  # type: ignore[arg-type]
        for name, draw in _possible(gathered).items():
            figure = draw(gathered)
            for ending in ("pdf", "png"):
                path = folder / f"{name}.{ending}"
                figure.savefig(path, dpi=300, metadata={"CreationDate": None} if ending == "pdf" else None)
                written.append(path)
            plt.close(figure)
    return written


def _possible(gathered: Gathered) -> dict[str, Callable[[Gathered], Figure]]:
    done = gathered.results.trials
    done = done[done["status"] == "done"]
    if done.empty:
        raise InputError("figures: no run is finished yet; they show finished runs only")
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
    if done[["labelled_iid", "labelled_other"]].to_numpy(float).sum() > 0:
        found["triples"] = node_triples
    return found


# --- the paper's -----------------------------------------------------------------------------------------------------


def paper_figure(gathered: Gathered, panels: list[Panel], below: bool) -> Figure:
    """In the paper's own arrangement: ours with bands, the published curves lighter and dashed.

    `below`: with the triples under it (Figure 1).
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    down, across = max(p.row for p in panels) + 1 + below, max(p.column for p in panels) + 1
    width = COLUMN if across == 1 else PAGE
    figure, axes = plt.subplots(
        down, across, figsize=(width, (1.9 if across < 3 else 1.45) * down + 0.45), squeeze=False, layout="constrained"
    )
    names = list(dict.fromkeys(curve for panel in panels for curve, _, _ in panel.curves))
    spare = iter([colour for colour in COLOURS if colour != PAPER_COLOURS["FedAvg"]])
    colours = {curve: PAPER_COLOURS.get(curve) or next(spare) for curve in names}
    curves = gathered.results.curves
    done = set(gathered.results.trials.query("status == 'done'")["trial"])
    curves = curves[curves["trial"].isin(done)]
    for panel in panels:
        axis = axes[panel.row, panel.column]
        for curve, experiment, quantity in panel.curves:
            mine = curves[curves["setting"] == setting_name(experiment)]
            last = draw_mean(axis, mine, quantity, colours[curve])
            draw_published(axis, experiment, quantity, colours[curve], last or 10**9)
        finish(axis)
        axis.set_ylim(bottom=_floor(panel, last, axis.get_ylim()[0]))
        title = panel.title.replace(", ", "\n" if across > 3 else ", ", 1) if across > 1 else ""
        label = AXIS_TITLES["test_loss"] if panel.curves[0][2] == "test_loss" else panel.quantity
        axis.set(title=title, xlabel="round", ylabel=label if panel.column == 0 else "")
    if below:
        _draw_triples(axes[-1, 0], gathered, "optimal-aggregation", with_paper=True)
    handles = [Line2D([], [], color=colours[curve], label=curve) for curve in names]
    handles.append(Line2D([], [], color="grey", linestyle="--", linewidth=1, alpha=0.7, label="published"))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=min(len(handles), 3 if across == 1 else 7), frameon=False
    )
    return figure


def _floor(panel: Panel, last: int | None, lowest: float) -> float:
    """Accuracies begin where the paper's own picture does: what matters are the last few points, not the climb."""
    curves = [
        published(experiment, quantity) for _, experiment, quantity in panel.curves if quantity == "test_accuracy"
    ]
    shown = [curve[curve.index <= (last or 10**9)].min() for curve in curves if curve is not None]
    return max(lowest, 100 * min(shown) - 2) if shown and not np.isnan(shown).any() else lowest


def _draw_triples(axis: Any, gathered: Gathered, strategy: str, with_paper: bool) -> None:
    """Times that every node was drawn, labelled and excluded: the mean over seeds, of a strategy's first setting."""
    runs = [run for run in gathered.runs if run.finished and run.experiment.strategy == strategy]
    first = runs[0].experiment
    runs = [
        run for run in runs if run.experiment.but(seed=first.seed).settings() == first.settings()
    ]  # one setting, all its seeds
    nodes = np.arange(runs[0].experiment.nodes)
    paper = triples() if with_paper else None
    for fate, colour in zip(FATES, FATE_COLOURS, strict=True):
        counts = np.mean([(run.summary or {})["nodes"][fate] for run in runs], axis=0)
        axis.bar(nodes, counts, color=colour, width=0.9, label=fate)
        if paper is not None:
            axis.plot(paper.index, paper[fate], ".", color="black", markersize=2, alpha=0.6)
    if runs[0].iid_nodes:
        axis.axvline(runs[0].iid_nodes - 0.5, color="black", linewidth=0.6)
    axis.set(
        xlabel="node (left of the line: i.i.d.)" + ("; dots: published, one run" if with_paper else ""), ylabel="times"
    )
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    axis.spines[["top", "right"]].set_visible(False)


# --- of any study ----------------------------------------------------------------------------------------------------


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
    """Bars: the mean over those seeds that reached a target; how many did stands above, if not all."""
    import matplotlib.pyplot as plt

    study = gathered.study
    rows = table(gathered.results, gathered.trials)
    lines = line_axes(study)
    records = rows.to_dict("records")
    panel_axes = [axis for axis in study.axes if axis not in lines]
    panels = list(dict.fromkeys(label_of(row, panel_axes) for row in records))
    names = list(dict.fromkeys(label_of(row, lines) for row in records))
    targets = [target for target in study.targets if rows[f"reached_{target:g}"].sum()]
    figure, axes = plt.subplots(
        len(targets),
        1,
        figsize=(COLUMN if len(panels) < 5 else PAGE, 1.9 * len(targets) + 0.6),
        squeeze=False,
        layout="constrained",
    )
    width = 0.8 / len(names)
    for axis, target in zip(axes[:, 0], targets, strict=True):
        for (k, name), colour in zip(enumerate(names), itertools.cycle(COLOURS)):
            mine = {label_of(row, panel_axes): row for row in records if label_of(row, lines) == name}
            for place, panel in enumerate(panels):
                row = mine.get(panel)
                if row is None or not row[f"reached_{target:g}"]:
                    continue
                x, height = place + (k - (len(names) - 1) / 2) * width, row[f"rounds_to_{target:g}"]
                axis.bar(x, height, width * 0.92, color=colour)
                if row[f"reached_{target:g}"] < row["seeds"]:
                    text = f"{row[f'reached_{target:g}']}/{row['seeds']}"
                    axis.text(x, height, text, ha="center", va="bottom", fontsize=5.5)
        axis.set(ylabel=f"rounds to {target:.0%}", xticks=range(len(panels)), xlim=(-0.6, len(panels) - 0.4))
        axis.set_xticklabels([panel.replace(", ", "\n") for panel in panels])
        axis.spines[["top", "right"]].set_visible(False)
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=name) for name, colour in zip(names, itertools.cycle(COLOURS), strict=False)]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)), frameon=False)
    return figure


def alpha_beta(gathered: Gathered) -> Figure:
    """The final accuracy over alpha and beta, one map for every setting of the other axes."""
    import matplotlib.pyplot as plt

    rows = table(gathered.results, gathered.trials).dropna(subset=["alpha", "beta"])
    others = [axis for axis in gathered.study.axes if axis not in ("alpha", "beta", "strategy")]
    groups: dict[str, list[dict[Any, Any]]] = {}
    for row in rows.to_dict("records"):
        groups.setdefault(label_of(row, others), []).append(row)
    across = min(len(groups), 3)
    down = -(-len(groups) // across)
    figure, axes = plt.subplots(
        down, across, figsize=(COLUMN if across == 1 else PAGE, 2.1 * down + 0.3), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, (title, found) in zip(axes.flat, groups.items(), strict=False):
        grid = pd.DataFrame(found).pivot_table(index="alpha", columns="beta", values="test_accuracy") * 100
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
    """Every node's triple (drawn, labelled, excluded), of the first setting of each strategy that labels nodes."""
    import matplotlib.pyplot as plt

    strategies = list(
        dict.fromkeys(
            run.experiment.strategy
            for run in gathered.runs
            if run.finished and sum((run.summary or {})["nodes"]["labelled"])
        )
    )
    figure, axes = plt.subplots(
        len(strategies), 1, figsize=(COLUMN, 2.1 * len(strategies)), squeeze=False, layout="constrained"
    )
    for axis, strategy in zip(axes[:, 0], strategies, strict=True):
        _draw_triples(axis, gathered, strategy, with_paper=False)
        axis.set_title(strategy, loc="left")
    return figure
