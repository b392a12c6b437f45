"""The selection report card: whom a strategy drew, and what drawing cost; columns of study.csv, a table of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedpns_ray.core.metrics.node_fairness import WORST_NODES
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.data.label_noise import noisy_nodes
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.labels import read_labels
from fedpns_ray.records.record import Record
from fedpns_ray.reporting.runs import Run
from fedpns_ray.reporting.statistics import interval

Counts = NDArray[np.int64]

COLUMNS = (
    Quantity("draws_jain", "Jain index of draws", better="higher"),
    Quantity("draws_gini", "Gini index of draws", better="lower"),
    Quantity("coverage", "nodes ever drawn", "%", 100.0, "higher"),
    Quantity("drawn_iid_share", "i.i.d. share of draws", "%", 100.0),
    Quantity("drawn_noisy_share", "share of draws with wrong labels", "%", 100.0, "lower"),
    Quantity("drawn_samples", "samples of a drawn node"),
    Quantity("drawn_labels", "labels in a round", "%", 100.0, "higher"),
    Quantity(Record.losses_asked, "losses asked", better="lower"),
    Quantity("selector_seconds", "seconds of the selector", "s", 1.0, "lower"),
)
"""What is computed for every run."""
TRAFFIC = (
    Quantity(Record.bytes_up, "sent by nodes", "MB", 1e-6, "lower"),
    Quantity(Record.bytes_down, "sent to nodes", "MB", 1e-6, "lower"),
)
"""These, and the accuracy of the worst nodes, are columns of study.csv already."""
SELECTING = ("draw", "select")
"""The phases of a round in which the selection works: before training, and after it."""
WHAT = (
    "Draws: 1/n to 1 for Jain's index and 0 to 1 for Gini's, where 1 and 0 mean that every node is drawn equally "
    "often. Labels in a round: those that the drawn nodes hold together, of all that there are. Losses asked: how "
    "often a node was asked for its loss before a draw. Seconds of the selector: of the server, for "
    "drawing (questions included), sifting, appraising and learning."
)


def jain(draws: Counts) -> float | None:
    """(sum of x)^2 / (n sum of x^2): 1 if all nodes are drawn equally often, 1/n if always the same one is."""
    return float(draws.sum() ** 2 / (len(draws) * np.square(draws).sum())) if draws.any() else None


def gini(draws: Counts) -> float | None:
    """The mean difference of two nodes over twice the mean: 0 if all are equal, (n - 1)/n if one has everything."""
    if not draws.any():
        return None
    n, ascending = len(draws), np.sort(draws)
    return float(2 * (np.arange(1, n + 1) * ascending).sum() / (n * ascending.sum()) - (n + 1) / n)


def card(run: Run | None) -> dict[str, float | None]:
    """The columns of a run; None where it cannot be said."""
    nothing: dict[str, float | None] = {column.key: None for column in COLUMNS}
    if run is None or not run.finished:
        return nothing
    drawn = [np.array(record.drawn, dtype=np.int64) for record in run.records]
    draws = np.bincount(np.concatenate([np.empty(0, dtype=np.int64), *drawn]), minlength=run.experiment.nodes)
    if not draws.any():
        return nothing
    iid = run.iid_nodes
    labels = read_labels((run.summary and run.summary.population) or {}, len(draws))
    values = (
        jain(draws),
        gini(draws),
        float((draws > 0).mean()),
        float(draws[:iid].sum() / draws.sum()) if 0 < iid < len(draws) else None,
        float(draws[_noisy(run.experiment)].sum() / draws.sum()) if _noise(run.experiment) else None,
        *_data(draws, drawn, labels),
        float(sum(record.losses_asked or 0 for record in run.records)),
        float(sum(record.seconds_by_phase.get(phase, 0.0) for record in run.records for phase in SELECTING)),
    )
    return {column.key: value for column, value in zip(COLUMNS, values, strict=True)}


def _noise(e: Experiment) -> bool:
    return bool(e.noisy_nodes and e.label_noise)


def _noisy(e: Experiment) -> NDArray[np.bool_]:
    return noisy_nodes(e.seed, e.nodes, e.noisy_nodes)


def _data(draws: Counts, drawn: Sequence[Counts], labels: Counts | None) -> tuple[float | None, float | None]:
    """The mean number of samples of a drawn node, and the mean share of labels that a round's nodes hold."""
    if labels is None:
        return None, None
    held = [float((labels[nodes].sum(axis=0) > 0).sum()) for nodes in drawn if len(nodes)]
    return float(draws @ labels.sum(axis=1) / draws.sum()), float(np.mean(held) / (labels.sum(axis=0) > 0).sum())


# --- the table -------------------------------------------------------------------------------------------------------


class Card(NamedTuple):
    header: list[str]
    rows: list[list[str]]
    better: list[str]
    """Which values of a column are the better ones: "higher", "lower", or neither."""


def report_card(trials: pd.DataFrame, axes: Sequence[str], intervals: bool = True) -> Card:
    """One row per setting: means over the seeds that finished ± half the 95 % interval; empty columns are left out."""
    done = trials[trials["status"] == "done"]
    shown = [*COLUMNS, *TRAFFIC, *([WORST_NODES] if _final(WORST_NODES) in done else [])]
    named = {column: column.key if column is not WORST_NODES else _final(column) for column in shown}
    filled = {column: key for column, key in named.items() if key in done and done[key].notna().any()}
    header = [*axes, *(column.label for column in filled)]
    rows = []
    for _, group in done.groupby("setting", sort=False):
        first = group.iloc[0]
        cells = [_cell(group[key].astype(float), column, intervals) for column, key in filled.items()]
        rows.append([*(str(first[axis]) for axis in axes), *cells])
    return Card(header, rows, [*("" for _ in axes), *(column.better for column in filled)])


def _final(quantity: Quantity) -> str:
    return f"final_{quantity.key}"


def _cell(values: pd.Series[float], column: Quantity, intervals: bool) -> str:
    known = values.dropna()
    if known.empty:
        return "-"
    mean = format(column.scale * known.mean(), ".2f" if column.scale == 100.0 else ".4g")
    half = interval(list(known)) if intervals else None
    if half is None or not np.isfinite(half):
        return mean
    digits = len(mean.partition(".")[2]) if "e" not in mean else 0
    return f"{mean} ± {column.scale * half:.{digits}f}"  # no finer than the mean


def card_markdown(card: Card, axes: Sequence[str]) -> str:
    """The card as Markdown; empty if no run has finished."""
    if not card.rows:
        return ""
    lines = [card.header, ["---" if name in axes else "---:" for name in card.header], *card.rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"\n## Selection report card\n\n{table}\n\n{WHAT}\n"
