"""The `search:` block of a study file, checked before anything starts.

search:
  space: {alpha: {min: 0.5, max: 4, step: 0.1}}
  target: 0.8
  algorithm: random                       optuna, random, grid, or package.module:Class
  scheduler: median                       asha, median, none, or package.module:Class
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from pydantic import Field, PositiveInt, ValidationInfo, field_validator

from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.study.search_names import check_name, find_class
from fedpns_ray.study.trials import MOST_TRIALS, Block
from fedpns_ray.validation import suggestion
from fedpns_ray.yaml_file import YamlFile

DIGITS = 6
"""Decimal places of suggested values: those that arithmetic adds are not settings."""
MOST_STEPS = 2**53
"""From here on, floating-point numbers cannot tell one step from the next."""


class Range(Block):
    """Numbers to search over, in steps, so that equal suggestions are equal trials."""

    min: float
    max: float
    step: float = Field(ge=10**-DIGITS)

    @field_validator("max")
    @classmethod
    def _above_min(cls, highest: float, info: ValidationInfo) -> float:
        if highest < info.data.get("min", highest):
            raise ValueError(f"it must be at least min, which is {info.data['min']:g}")
        return highest

    @field_validator("step")
    @classmethod
    def _from_min_to_max(cls, step: float, info: ValidationInfo) -> float:
        """Tune, too, takes quantised numbers for multiples of the step."""
        for key in ("min", "max"):
            steps = info.data.get(key, 0.0) / step
            if abs(steps) >= MOST_STEPS or not math.isclose(steps, round(steps)):
                raise ValueError(f"{key}, which is {info.data[key]:g}, must be a multiple of it")
        return step

    @property
    def count(self) -> int:
        return round(self.max / self.step) - round(self.min / self.step) + 1

    def value(self, k: int) -> float:
        """The k-th value, from `min` on."""
        return round((round(self.min / self.step) + k) * self.step, DIGITS)

    def nearest(self, number: float) -> float | None:
        """The nearest value; None if the number lies outside."""
        if not self.min - self.step / 2 <= number <= self.max + self.step / 2:
            return None
        return self.value(min(max(round((number - self.min) / self.step), 0), self.count - 1))


class Search(Block):
    """Suggestions instead of a grid of trials: the fewest rounds to a target accuracy."""

    space: dict[str, Range] = Field(min_length=1)
    """Settings to search over."""
    target: float = Field(gt=0, lt=1)
    """The accuracy to reach."""
    algorithm: str = "optuna"
    """Suggests settings: a name, or the import path of a ray.tune.search.Searcher."""
    scheduler: str = "asha"
    """Stops trials that fall behind: a name, or the import path of a ray.tune.schedulers.TrialScheduler."""
    trials: PositiveInt = 30
    """Suggestions to try, each with the first seed.

    A grid tries all of its points. It is refused if `trials` allows fewer: the first points of a grid are one corner of
    the space, and say nothing about the rest.
    """
    grace: PositiveInt = 20
    """Rounds that every trial may run before the scheduler judges it."""
    confirm: PositiveInt = 3
    """How many of the best suggestions are run to the end with all seeds, in addition to the base settings."""

    @property
    def points(self) -> int:
        """The number of points of the space, which is counted and never listed."""
        return math.prod(each.count for each in self.space.values())

    def left(self, tried: Iterable[Mapping[str, float]]) -> int:
        """How many suggestions are still to be tried. A grid counts its own points, no matter what suggested them."""
        settings = list(tried)
        if self.algorithm != "grid":
            return self.trials - len(settings)
        return self.trials - len({tuple(each.values()) for each in settings if self.holds(each)})

    def holds(self, settings: Mapping[str, float]) -> bool:
        """Whether settings are a point of the space; the study's own need not be."""
        return all(span.nearest(settings[key]) == settings[key] for key, span in self.space.items())


def checked_search(file: YamlFile, search: Search, first: Experiment, importing: bool) -> Search:
    """The search with the number of trials it comes to; errors name the line. `first` has the base settings."""
    for kind in ("algorithm", "scheduler"):
        name = getattr(search, kind)
        try:
            check_name(kind, name)
            if importing and ":" in name:
                find_class(kind, name)
        except InputError as error:
            raise error.at(file.place("search", kind)) from None
    if importing:
        _check_space(file, search, first)
    if search.algorithm == "grid":
        _check_grid(file, search)
        return search.model_copy(update={"trials": search.points})
    if search.algorithm == "random":  # which draws no point twice
        return search.model_copy(update={"trials": min(search.trials, search.points)})
    return search


def _check_space(file: YamlFile, search: Search, first: Experiment) -> None:
    """What is searched over must be a number that the experiment uses, and may take the values of its range."""
    settings = first.all_settings()
    numbers = [key for key, value in settings.items() if type(value) in (int, float) and key not in ("seed", "rounds")]
    for key, span in search.space.items():
        name, place = f"search.space.{key}", file.place("search", "space", key)
        if key not in numbers:
            problem = "is not a number that can be searched over"
            raise InputError(name, problem=problem, hint=suggestion(key, numbers), place=place)
        for k in sorted(
            {0, min(1, span.count - 1), span.count - 1}
        ):  # a whole number has no second value in half steps
            try:
                Experiment(**settings | {key: span.value(k)})
            except InputError as error:
                raise error.at(place, name) from None


def _check_grid(file: YamlFile, search: Search) -> None:
    if search.points > MOST_TRIALS:
        problem, allowed = f"a grid of it has {search.points:,} points", f"there may be at most {MOST_TRIALS:,}"
        raise InputError("search.space", allowed=allowed, problem=problem, place=file.place("search", "space"))
    if "trials" in search.model_fields_set and search.trials < search.points:
        allowed = f"the grid has {search.points:,} points, and all are tried"
        hint = "leave trials out, or search at random"
        raise InputError("search.trials", search.trials, allowed, hint, place=file.place("search", "trials"))
