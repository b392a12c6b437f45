"""Whether a panel of the paper is reproduced, by a rule that is stated before anything is compared.

A value is reproduced if the published one lies within 1 point of our mean, or within our 95 % interval if half of that
is at most 1.5 points. For losses and gradient norms, which are not in points, a point is read as 5 % of the published
value.

A panel is
- reproduced, if all its values are;
- its order is reproduced, if every difference has the published sign and an interval that excludes 0;
- undecided, if an interval is too wide to tell: more seeds would decide;
- not reproduced otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import setting_name
from fedpns_ray.records.record import CORE
from fedpns_ray.reporting.published import Panel, figures
from fedpns_ray.reporting.statistics import interval
from fedpns_ray.reporting.tables import Results, final, published_final

REPRODUCED, ORDER, UNDECIDED, NOT, INCOMPLETE = (
    "reproduced", "order reproduced", "undecided", "not reproduced", "incomplete",
)  # fmt: skip
NEAR, NARROW, POINT = 1.0, 1.5, 0.05
"""Points that a published value may be away; half the widest interval that counts; a point of other quantities."""
BASELINE = "FedAvg"


@dataclass(frozen=True)
class Value:
    """What a curve of a panel comes to, in its own unit (accuracies in %), and what the paper has."""

    curve: str
    finals: pd.Series[float]
    """By seed."""
    of: int
    """Seeds that the study asks for."""
    published: float
    in_points: bool

    @cached_property
    def mean(self) -> float:
        return float(self.finals.mean()) if len(self.finals) else float("nan")

    @cached_property
    def half(self) -> float:
        return interval(list(self.finals))

    @property
    def point(self) -> float:
        return 1.0 if self.in_points else POINT * abs(self.published)

    @property
    def verdict(self) -> str:
        if not len(self.finals):
            return INCOMPLETE
        away = abs(self.published - self.mean)
        if away <= NEAR * self.point or away <= self.half <= NARROW * self.point:
            return REPRODUCED
        return UNDECIDED if not away > self.half else NOT  # NaN, of a single seed, decides nothing


@dataclass(frozen=True)
class Difference:
    """Two curves of a panel, paired by seed."""

    name: str
    points: NDArray[np.float64]
    published: float

    @cached_property
    def mean(self) -> float:
        return float(self.points.mean()) if len(self.points) else float("nan")

    @cached_property
    def half(self) -> float:
        return interval(self.points)

    @property
    def verdict(self) -> str:
        """Whether the order is the published one."""
        if not abs(self.mean) > self.half:
            return UNDECIDED
        return ORDER if self.mean * self.published > 0 else NOT


@dataclass(frozen=True)
class Compared:
    """A panel, ours beside the published one."""

    title: str
    quantity: str
    values: tuple[Value, ...]
    differences: tuple[Difference, ...]

    @property
    def verdict(self) -> str:
        if any(value.verdict == INCOMPLETE for value in self.values):
            return INCOMPLETE
        if all(value.verdict == REPRODUCED for value in self.values):
            return REPRODUCED
        if all(one.verdict == ORDER for one in self.differences):
            return ORDER
        some = {*(value.verdict for value in self.values), *(one.verdict for one in self.differences)}
        return UNDECIDED if UNDECIDED in some else NOT

    @property
    def whole(self) -> bool:
        """Whether every seed that the study asks for is there."""
        return all(len(value.finals) == value.of for value in self.values)


def compared(results: Results, name: str) -> list[Compared]:
    """Every panel of a figure (`fig3`), by the trials that are done."""
    experiments = {setting_name(trial.experiment): trial.experiment for trial in results.study.trials}
    asked = {str(name): len(group) for name, group in results.trials.groupby("setting")}
    return [_panel(results, panel, experiments, asked) for panel in figures()[name]]


def _panel(results: Results, panel: Panel, experiments: dict[str, Experiment], asked: dict[str, int]) -> Compared:
    values = []
    for curve, experiment, key in panel.curves:
        setting, quantity = setting_name(experiment), CORE[key]
        mine = results.done[results.done["setting"] == setting].set_index("seed")
        finals = quantity.scale * mine[final(key)].astype(float).dropna()
        paper = published_final(experiments.get(setting, experiment), key)
        there = float("nan") if paper is None else quantity.scale * paper
        values.append(Value(curve, finals, int(asked.get(setting, 0)), there, quantity.unit == "%"))
    return Compared(panel.title, CORE[panel.curves[0][2]].title, tuple(values), tuple(_differences(values)))


def _differences(values: Sequence[Value]) -> list[Difference]:
    """Every curve against FedAvg; where that is not shown, the first against the others."""
    base = next((value for value in values if value.curve == BASELINE), None)
    pairs = [(one, base) for one in values if one is not base] if base else [(values[0], one) for one in values[1:]]
    found = []
    for one, other in pairs:
        both = pd.concat([one.finals, other.finals], axis=1, join="inner").to_numpy(float)
        points = both[:, 0] - both[:, 1]
        found.append(Difference(f"{one.curve} minus {other.curve}", points, one.published - other.published))
    return found
