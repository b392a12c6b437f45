"""The curves of the page: every quantity of every run over rounds, and their means over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.record import CORE, Record
from fedpns_ray.records.schema import plotted, united
from fedpns_ray.reporting import theory
from fedpns_ray.reporting.published import published
from fedpns_ray.reporting.runs import Run
from fedpns_ray.strategies.optimal_aggregation import EXPECTATION, EXPECTATION_AFTER
from fedpns_ray.strategies.pns import IID_PROBABILITY

Series = dict[str, NDArray[np.float64]]

SECONDS, MEGABYTES, SIMULATED = "seconds", "megabytes", "simulated"
"""What curves can be drawn over in addition to rounds; all of them are cumulative."""
THEORY: tuple[dict[str, Any], ...] = (
    {"chart": "delta", "title": "delta", "parts": [(theory.DELTA.key, "", "")]},
    {
        "chart": "gamma",
        "title": "gradient norm bound γ",
        "parts": [(theory.GAMMA_SELECTED.key, ": Σ pγ", ""), (theory.GAMMA_MEAN.key, ": mean γ", "dash")],
        "needs": theory.GAMMA_SELECTED.key,
        "without": "Remark 1 needs probabilities; no strategy shown here has them.",
    },
    {
        "chart": "norms",
        "title": "gradient norm",
        "parts": [(Record.gradient_norm_iid, ", i.i.d.", ""), (Record.gradient_norm_other, ", other", "dash")],
    },
    {
        "chart": "expectation",
        "title": "expectation of Lemma 1",
        "parts": [(EXPECTATION.key, ", all updates", "dash"), (EXPECTATION_AFTER.key, ", after exclusion", "")],
    },
    {
        "chart": "divergence",
        "title": "weight divergence ‖w − v‖",
        "parts": [(Record.weight_divergence, "", "")],
        "optional": True,
    },
)
"""The charts of the theory: which series each shows, with what is added to the line's name and its dash."""


def bounds(quantity: Quantity) -> tuple[float | None, float | None]:
    """What is possible: an interval is never drawn beyond it. Losses and norms are not negative."""
    if quantity.unit == "%":
        return 0.0, 100.0
    if quantity.key == IID_PROBABILITY.key:
        return 0.0, 1.0
    return (0.0, None) if quantity.key in CORE else (None, None)


def quantities_of(runs: Sequence[Run]) -> tuple[Quantity, ...]:
    """What can be plotted for these runs: what they declare, and what follows from their records."""
    return united([*(plotted(run.quantities) for run in runs), theory.QUANTITIES])


def run_series(run: Run) -> Series:
    """Everything that is drawn over rounds, one value per round."""
    records = run.records
    found = {q.key: np.array([r.get(q.key) for r in records], dtype=float) * q.scale for q in plotted(run.quantities)}
    found |= theory.theory(records, run.experiment.nodes)
    found[SECONDS] = np.cumsum([record.seconds for record in records])
    found[MEGABYTES] = 1e-6 * np.cumsum([_transmitted(record) for record in records])
    found[SIMULATED] = np.cumsum([record.get(Record.simulated_seconds, np.nan) for record in records])
    return found


def _transmitted(record: Record) -> float:
    """Bytes of a round; NaN in records from before they were counted."""
    return float(record.get(Record.bytes_up, np.nan) + record.get(Record.bytes_down, np.nan))


def means(runs: Sequence[Series]) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """The mean over seeds and half its 95 % interval, up to the last round that all seeds have."""
    length = min(len(series[SECONDS]) for series in runs)
    found = {}
    for key in [key for key in runs[0] if all(key in series for series in runs)]:
        values = np.stack([series[key][:length] for series in runs])
        half = np.full(length, np.nan)
        if len(runs) > 2:
            half = stats.t.ppf(0.975, len(runs) - 1) * values.std(axis=0, ddof=1) / np.sqrt(len(runs))
        found[key] = values.mean(axis=0), half
    return found


def compacted(runs: Sequence[Series]) -> dict[str, Any]:
    """The means as the page holds them; what no round has is left out."""
    return {
        key: {"mean": compact(mean), **({"half": compact(half, 3)} if not np.isnan(half).all() else {})}
        for key, (mean, half) in (means(runs) if runs else {}).items()
        if not np.isnan(mean).all()
    }


def published_series(experiment: Experiment, quantities: Sequence[Quantity], rounds: int) -> dict[str, Any]:
    """The paper's curves for this experiment, as far as ours go."""
    found = {}
    for quantity in quantities:
        curve = published(experiment, quantity.key)
        if curve is not None:
            curve = curve[curve.index <= rounds] * quantity.scale
            values = compact(np.array(curve, dtype=np.float64))
            found[quantity.key] = {"round": curve.index.tolist(), "value": values}
    return found


def compact(values: NDArray[np.float64], digits: int = 4) -> list[float | None]:
    """Values with as few digits as a picture needs, null if not finite. An accuracy keeps its hundredths."""
    return [
        float(f"{value:.{digits}g}") if finite else None
        for value, finite in zip(values.tolist(), np.isfinite(values).tolist(), strict=True)
    ]
