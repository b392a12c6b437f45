"""Who draws whom: how often every node met each fate, over the rounds, as the mean over the seeds of a setting."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.records.record import FATES
from fedpns_ray.reporting.runs import Run
from fedpns_ray.reporting.selection_map import MOST_NODES, as_base64, probabilities
from fedpns_ray.reporting.series import compact

MOST_STEPS = 40
"""Steps that the rounds are divided into."""
PROBABILITY = "probability"


def selection_means(runs: Sequence[Run], setting: int) -> dict[str, Any] | None:
    """The means of a setting; only the fates that its strategy has. None if there is nothing to show."""
    shown = [run for run in runs if run.records and run.experiment.nodes <= MOST_NODES]
    if not shown:
        return None
    nodes, rounds = shown[0].experiment.nodes, min(len(run.records) for run in shown)
    steps = min(rounds, MOST_STEPS)
    ends = np.linspace(0, rounds, steps + 1).round().astype(int)
    maps = {fate: np.mean([_met(run, fate, rounds) for run in shown], axis=0) for fate in FATES}
    found = {fate: met for fate, met in maps.items() if met.any()}
    own = [p[:rounds] for run in shown if (p := probabilities(run)) is not None]
    if len(own) == len(shown):
        found[PROBABILITY] = np.mean(own, axis=0)
    return {
        "setting": setting,
        "nodes": nodes,
        "iid": shown[0].iid_nodes,
        "seeds": [run.experiment.seed for run in shown],
        "ends": ends[1:].tolist(),
        "maps": {name: _steps(met, ends) for name, met in found.items()},
        "times": {fate: compact(found[fate].sum(axis=0)) for fate in FATES if fate in found},
    }


def _met(run: Run, fate: str, rounds: int) -> NDArray[np.float64]:
    """1 where a node met a fate, one row per round."""
    met = np.zeros((rounds, run.experiment.nodes))
    for row, record in zip(met, run.records, strict=False):
        row[record[fate]] = 1
    return met


def _steps(values: NDArray[np.float64], ends: NDArray[np.int64]) -> dict[str, Any]:
    """Means over steps of rounds, in 255 parts of the largest."""
    means = np.stack([values[a:b].mean(axis=0) for a, b in itertools.pairwise(ends)])
    largest = float(means.max()) or 1.0
    return {"largest": float(f"{largest:.5g}"), "values": as_base64(np.rint(255 * means / largest).astype(np.uint8))}
