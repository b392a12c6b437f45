"""Strategies side by side: a table and a plot over seeds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpns_ray.records.result import Result
from fedpns_ray.records.run_folder import LEDGER
from fedpns_ray.reporting.statistics import interval

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's palette: told apart by every eye."""


def table(results: Sequence[Result]) -> pd.DataFrame:
    """One row a strategy, in the order given: means over seeds."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.experiment.label, []).append(result)
    target = _highest_target_of_all([result for result in results if not result.diverged])
    return pd.DataFrame([_row(label, group, target) for label, group in groups.items()])


def _row(label: str, every: list[Result], target: str | None) -> dict[str, Any]:
    """Means over the seeds that came to their end; how many diverged is said beside them."""
    group = [result for result in every if not result.diverged]

    def mean(key: str) -> float:
        values = [np.nan if r.summary.get(key) is None else r.summary[key] for r in group]
        return float(np.mean(values)) if values else float("nan")

    return {
        "strategy": label,
        "seeds": len(group),
        "diverged": len(every) - len(group),
        "final_accuracy": mean("final_accuracy"),
        "interval": interval([result.summary["final_accuracy"] for result in group]),
        "best_accuracy": mean("best_accuracy"),
        "last_loss": mean("last_loss"),
        "target": target,
        "rounds_to_target": float(np.mean([r.summary["rounds_to"][target] for r in group]))
        if target and group
        else None,
        "seconds": mean("seconds"),
        **{key: mean(key) for key in LEDGER},
    }


def _highest_target_of_all(results: Sequence[Result]) -> str | None:
    """The highest target accuracy that every run reached, so that all rows speak of the same one."""
    if not results:
        return None
    reached = [key for key in results[0].summary["rounds_to"] if all(r.summary["rounds_to"][key] for r in results)]
    return reached[-1] if reached else None


def plot(results: Sequence[Result], path: Path) -> None:
    """Test accuracy and loss over rounds, one colour a strategy: the mean over seeds.

    Three seeds or more get a 95 % band; fewer are drawn as thin lines, since an interval of two values says nothing.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = [result for result in results if not result.diverged] or results  # half a curve would cut the means
    labels = list(dict.fromkeys(result.experiment.label for result in results))
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for axis, key, name in ((axes[0], "test_accuracy", "test accuracy (%)"), (axes[1], "test_loss", "test loss")):
        for colour, label in zip(itertools.cycle(COLOURS), labels):
            frames = [r.rounds[key].astype(float) for r in results if r.experiment.label == label]
            curves = pd.concat(frames, axis=1).dropna() * (100 if key == "test_accuracy" else 1)
            mean = curves.mean(axis=1)
            axis.plot(mean.index, mean, color=colour, label=label, linewidth=1.6, zorder=3)
            axis.plot(curves.index, curves, color=colour, linewidth=0.5, alpha=0.4 if len(frames) == 2 else 0)
            if len(frames) > 2:
                half = np.array([interval(row) for row in curves.to_numpy()])
                axis.fill_between(mean.index, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)
        axis.relim()  # of lines only: the axis shows the range of the runs, not of a wide band
        axis.autoscale_view()
        axis.set(xlabel="round", ylabel=name)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    e, seeds = results[0].experiment, len({result.experiment.seed for result in results})
    figure.suptitle(f"{e.model} on {e.dataset}, {e.nodes} nodes, {seeds} seed{'s' * (seeds > 1)}", fontsize=11)
    partial = path.with_name(f".{path.name}")
    figure.savefig(partial, dpi=150, format=path.suffix[1:])
    partial.replace(path)
    plt.close(figure)
