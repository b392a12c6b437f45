"""Claims: what a study expects to find, stated before it runs, so that it can fail.

claims:
  - {better: fedpns, than: fedavg, margin_points: 0.5}
  - {not_worse: optimal-aggregation, than: fedavg, margin_points: 1, where: {sigma: 0.3}}
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from fedpns_ray.errors import InputError
from fedpns_ray.records.summary import Summary
from fedpns_ray.settings import Settings
from fedpns_ray.study.trials import Block, Trial, chosen
from fedpns_ray.validation import suggestion
from fedpns_ray.yaml_file import YamlFile

ON = (Summary.final_accuracy, Summary.best_accuracy)
"""What a claim may be about: columns of study.csv that are accuracies."""


class Claim(Block):
    """One strategy against another, seed by seed, in every combination of the study's other axes."""

    better: str = ""
    """The strategy that is claimed to be better by more than the margin."""
    not_worse: str = ""
    """The strategy that is claimed to be worse by less than the margin, if at all."""
    than: str
    """The other strategy."""
    on: str = ON[0]
    """final_accuracy or best_accuracy."""
    margin_points: float = Field(0.0, ge=0, le=100)
    """In percentage points."""
    level: float = Field(0.05, gt=0, lt=0.5)
    """The probability of keeping a claim that does not hold, over all claims of the study together."""
    where: Settings = Field(default_factory=dict)
    """Settings to which the claim is limited, such as {sigma: 0.3}."""

    @property
    def strategy(self) -> str:
        """The one that the claim is for."""
        return self.better or self.not_worse

    def describe(self) -> str:
        points = f"{self.margin_points:g} point{'' if self.margin_points == 1 else 's'}"
        if self.not_worse:
            return f"{self.strategy} is not worse than {self.than} by {points} or more"
        margin = f" by more than {points}" if self.margin_points else ""
        return f"{self.strategy} is better than {self.than}{margin}"


def check_claims(file: YamlFile, claims: Sequence[Claim], trials: Sequence[Trial]) -> None:
    """Raise an InputError, with the line, for a claim that the study cannot decide."""
    strategies = list(dict.fromkeys(trial.experiment.strategy for trial in trials))
    for k, claim in enumerate(claims):
        place = file.place("claims", k)
        if bool(claim.better) == bool(claim.not_worse):
            problem = "names both better and not_worse" if claim.better else "names neither better nor not_worse"
            raise InputError(f"claims.{k}", problem=problem, hint="name one of them", place=place)
        for key, name in (("better" if claim.better else "not_worse", claim.strategy), ("than", claim.than)):
            if name not in strategies:
                problem = "is not a strategy of this study"
                hint = suggestion(name, strategies)
                raise InputError(f"claims.{k}.{key}", name, hint=hint, problem=problem, place=place)
        if claim.strategy == claim.than:
            raise InputError(f"claims.{k}.than", claim.than, problem="is compared with itself", place=place)
        if claim.on not in ON:
            raise InputError(f"claims.{k}.on", claim.on, f"it must be {' or '.join(ON)}", place=place)
        if claim.where:
            try:
                chosen(list(trials), claim.where)
            except InputError as error:
                raise error.at(place, f"claims.{k}.where") from None
