"""Figures for papers, as PDF (text stays text) and PNG: those of any study, and the paper's own from its runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedpns_ray.atomic_file import replacing
from fedpns_ray.errors import InputError
from fedpns_ray.naming import setting_name
from fedpns_ray.records.record import FATES, Record
from fedpns_ray.records.summary import counts
from fedpns_ray.reporting.canvas import COLUMN, PAGE, STYLE, bare
from fedpns_ray.reporting.canvas import panels as panels_of
from fedpns_ray.reporting.collecting import Gathered
from fedpns_ray.reporting.curves import Sheet, line_axes, study_figure
from fedpns_ray.reporting.names import in_words, proper
from fedpns_ray.reporting.palette import Look, looks
from fedpns_ray.reporting.paper_figures import Triples, draw_triples, paper_figure
from fedpns_ray.reporting.published import figures
from fedpns_ray.reporting.tables import table
from fedpns_ray.reporting.targets import marked, refuse_foreign

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
            if gathered.label and not name.startswith("curves"):  # whose title says it
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
            found[name.replace("fig", "figure")] = partial(_of_the_paper, name=name)
    found["curves"] = partial(_curves, sheet=Sheet(PAGE, 4, title=False))
    found["curves-column"] = partial(_curves, sheet=Sheet(COLUMN, 2, title=False))
    if any(done[f"rounds_to_{target:g}"].notna().any() for target in gathered.study.targets):
        found["rounds-to-target"] = rounds_to_target
    if {"alpha", "beta"} <= set(gathered.study.axes):
        found["alpha-beta"] = alpha_beta
    if np.nansum(done[[f"{Record.labelled}_iid", f"{Record.labelled}_other"]].to_numpy(float)) > 0:
        found["triples"] = node_triples
    return found


def _of_the_paper(gathered: Gathered, name: str) -> Figure:
    below = triples_of(gathered, "optimal-aggregation") if name == "fig1" else None
    return paper_figure(gathered.results, figures()[name], below)


# --- any study -------------------------------------------------------------------------------------------------------


def _curves(gathered: Gathered, sheet: Sheet) -> Figure:
    return study_figure(gathered.results, sheet)


def rounds_to_target(gathered: Gathered) -> Figure:
    """Bars: the mean over the seeds that reached a target, with its interval; above: how many did, if not all."""
    from matplotlib.patches import Patch

    study, rows = gathered.study, table(gathered.results, gathered.trials)
    lines, records = line_axes(study), rows.to_dict("records")
    others = [axis for axis in study.axes if axis not in lines]
    places = list(dict.fromkeys(in_words(row, others, symbols=True) for row in records))
    names = {in_words(row, lines): in_words(row, lines, symbols=True) for row in records}
    targets = [target for target in study.targets if rows[f"reached_{target:g}"].sum()]
    alone, look = len(places) == 1, looks(names)
    wide = len(places) * len(names) > 8
    figure, axes = panels_of(len(targets), 1, (PAGE if wide else COLUMN, 1.9 * len(targets) + 0.6))
    by_place = {(in_words(row, others, symbols=True), in_words(row, lines)): row for row in records}
    for axis, target in zip(axes[:, 0], targets, strict=True):
        for (x, place), (k, name) in itertools.product(enumerate(places), enumerate(names)):
            row, width = by_place.get((place, name)), 0.8 / len(names)
            if row:
                at = (k, 0.8) if alone else (x + (k - (len(names) - 1) / 2) * width, width)
                _bar(axis, row, target, at, look[name], HATCHES[k % len(HATCHES)])
        ticks = list(names.values()) if alone else [place.replace(", ", "\n") for place in places]
        axis.set(ylabel=f"rounds to {target:.0%}", xticks=range(len(ticks)), xlim=(-0.6, len(ticks) - 0.4))
        axis.set_xticklabels(ticks, rotation=35 if len(ticks) > 6 else 0, ha="right" if len(ticks) > 6 else "center")
        axis.set_ylim(bottom=0)
        bare(axis)
    if not alone:
        handles = [
            Patch(facecolor=look[name].colour, edgecolor="white", hatch=HATCHES[k % len(HATCHES)], label=shown)
            for k, (name, shown) in enumerate(names.items())
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)), frameon=False)
    return figure


HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\")
"""They tell bars apart in greyscale."""


def _bar(axis: Any, row: dict[Any, Any], target: float, at: tuple[float, float], look: Look, hatch: str) -> None:
    """`at`: the middle of the bar, and its width."""
    key, reached = f"rounds_to_{target:g}", row[f"reached_{target:g}"]
    height, half = (row[key], row[f"{key}_interval"]) if reached else (0.0, np.nan)
    axis.bar(at[0], height, at[1] * 0.92, color=look.colour, hatch=hatch, edgecolor="white", linewidth=0.4)
    top = height
    if np.isfinite(half):  # where the table has an interval
        below = min(half, height)  # there are no negative rounds
        style = {"ecolor": "black", "elinewidth": 0.7, "capsize": 2}
        axis.errorbar(at[0], height, yerr=[[below], [half]], fmt="none", **style)
        top = height + half
    if reached < row["seeds"]:
        axis.text(at[0], top, f"{reached}/{row['seeds']}", ha="center", va="bottom", fontsize=5.5)


def alpha_beta(gathered: Gathered) -> Figure:
    """The final accuracy over alpha and beta, one map per setting of the other axes."""
    rows = table(gathered.results, gathered.trials).dropna(subset=["alpha", "beta"])
    others = [axis for axis in gathered.study.axes if axis not in ("alpha", "beta", "strategy")]
    groups: dict[str, list[dict[Any, Any]]] = {}
    for row in rows.to_dict("records"):
        groups.setdefault(in_words(row, others, symbols=True), []).append(row)
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
        draw_triples(axis, triples_of(gathered, strategy))
        axis.set_title(proper(strategy), loc="left")
    return figure


def triples_of(gathered: Gathered, strategy: str) -> Triples:
    """How often each node was drawn, labelled and excluded: the mean over seeds of a strategy's first setting."""
    runs = [run for run in gathered.runs if run.finished and run.experiment.strategy == strategy]
    first = runs[0].experiment
    runs = [run for run in runs if run.experiment.but(seed=first.seed).settings() == first.settings()]
    found = {fate: [counts(run.summary, fate, first.nodes) for run in runs if run.summary] for fate in FATES}
    means = {fate: np.mean([one for one in each if one is not None], axis=0) for fate, each in found.items()}
    return Triples(means, runs[0].iid_nodes)
