"""A study file: a base experiment, axes, seeds, what to plot. Validated as a whole before anything starts.

    base: {dataset: mnist}                    settings that all trials share
    axes: {strategy: [fedpns, fedavg], sigma: [0.2, 0.3]}
    seeds: 1-5

A value of an axis may be several settings at once ({nodes: 500, fraction: 0.02}). `grids` lists several such blocks,
each on top of the base, axes and seeds above it; a trial that two of them name is one trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, PositiveFloat, ValidationError, field_validator

from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import as_folder, folder_name
from fedpns_ray.records.record import Record
from fedpns_ray.records.schema import declared, plotted
from fedpns_ray.registry import KINDS, known_parameters
from fedpns_ray.runtime.deadlines import PATIENCE
from fedpns_ray.runtime.layout import Layout
from fedpns_ray.settings import Settings, drop_idle, names_user_code
from fedpns_ray.study.claims_block import Claim, check_claims
from fedpns_ray.study.fuse import Fuse, parse_fuse
from fedpns_ray.study.search_block import Range, Search, checked_search
from fedpns_ray.study.trials import Block, Expansion, Grid, Grids, Trial, chosen, described, selection_words
from fedpns_ray.validation import refusal, suggestion
from fedpns_ray.yaml_file import YamlFile

__all__ = ["Plot", "Search", "Study", "Trial", "read_study"]

OVER = (Record.round, Record.simulated_seconds, Record.bytes_up, Record.bytes_down)


class Plot(Block):
    """What to draw; what is not given follows from the axes."""

    quantities: list[str] = Field([Record.test_accuracy])
    """Keys of records: one row of panels each, and one column of the table."""
    lines: list[str] = Field([])
    """Axes shown by colour; each value of the others is a panel. Default: strategy, or the first axis."""
    over: str = Record.round
    """The horizontal axis: rounds, or what they have cost so far, as the mean over seeds."""

    @field_validator("over")
    @classmethod
    def _known(cls, over: str) -> str:
        if over not in OVER:
            raise ValueError(f"it must be {', '.join(OVER[:-1])} or {OVER[-1]}")
        return over


class File(Grids):
    """The keys of a study file."""

    title: str = ""
    baseline: Settings = Field({"strategy": "fedavg"})
    """What trials are compared with: the same settings and seed, except for these."""
    targets: list[float] = Field([0.8, 0.9])
    """Accuracies to count the rounds to."""
    plot: Plot = Plot()
    layout: dict[str, Any] | None = None
    """Spread each trial over node actors; the keys are those of Layout. Default: one process per trial."""
    cpus_per_trial: PositiveFloat = 1.0
    gpus_per_trial: float | None = Field(None, ge=0)
    cpu_fallback: bool = False
    """Train on the CPU where a trial is given a GPU but torch there sees none; otherwise that is refused."""
    patience: float = Field(PATIENCE, ge=1)
    """Seconds that a worker may be silent, at least, before it is killed and its work done again."""
    fuse: str | int = "auto"
    """How many trials that share their shapes run in one worker, which trains and tests them together: auto, off, N."""
    search: Search | None = None
    claims: list[Claim] = Field([])
    """What the study expects to find."""

    @field_validator("fuse", mode="before")
    @classmethod
    def _known(cls, fuse: Any) -> Fuse:
        return parse_fuse(fuse)

    @field_validator("targets")
    @classmethod
    def _accuracies(cls, targets: list[float]) -> list[float]:
        for target in targets:
            if not 0 < target < 1:
                raise ValueError(f"{target} is not an accuracy; it must be between 0 and 1")
        return targets


@dataclass(frozen=True)
class Study:
    """A study, ready to run: every trial is valid, in the order in which they should run."""

    name: str
    title: str
    trials: list[Trial]
    axes: list[str]
    """The settings that differ between trials, in the file's order; without the seed."""
    baseline: Settings
    targets: list[float]
    plot: Plot
    layout: Layout | None
    cpus_per_trial: float
    gpus_per_trial: float | None
    search: Search | None
    text: bytes = field(default=b"", repr=False)
    """The content of the file."""
    importing: bool = True
    """Whether user-defined parts may be imported: for running, never for reading."""
    cpu_fallback: bool = False
    """Whether trials may train on the CPU where they were given a GPU that torch cannot use."""
    patience: float = PATIENCE
    """Seconds that a worker may be silent, at least, before it is killed and its work done again."""
    whole: list[Trial] = field(default_factory=list, repr=False)
    """Every trial of the file, with the file's own seeds; `trials` are those that were asked for. Default: the same."""
    claims: tuple[Claim, ...] = ()
    """What the study expects to find."""
    fuse: Fuse = "auto"
    """How many trials run in one worker: auto, off, or a number."""
    selection: str = ""
    """What was asked for, in words, such as model=mlr; empty for all of it."""

    def __post_init__(self) -> None:
        if not self.whole:
            object.__setattr__(self, "whole", self.trials)

    def partner(self, trial: Trial, others: Mapping[str, Experiment]) -> str | None:
        """The name of the experiment that a trial is compared with, if it is among the others (and not itself)."""
        settings = trial.settings | self.baseline
        if set(self.baseline) & {"strategy", *KINDS} and not names_user_code(self.baseline):
            foreign = set(trial.experiment.parameters) - set(known_parameters())  # of a user-defined part
            settings = {key: value for key, value in settings.items() if key not in foreign}
        baseline = described(settings, self.importing)
        name: str | None = folder_name(baseline)
        if name not in others and not baseline.imported:
            name = next((other for other, theirs in others.items() if baseline.agrees_with(theirs, settings)), None)
        return name if name in others and name != trial.name else None

    @property
    def grace(self) -> int:
        """Rounds before a search judges a trial; all rounds if there are fewer, so that none is stopped early."""
        assert self.search is not None
        return min(self.search.grace, self.trials[0].experiment.rounds)

    def confirmation(self, ranked: Sequence[Settings]) -> list[Trial]:
        """The trials that confirm a search: its own settings and the best suggestions, each with all seeds."""
        assert self.search is not None
        candidates: list[Settings] = [{}, *ranked[: self.search.confirm]]
        trials = [
            Trial(Experiment(**drop_idle(trial.settings | settings)), trial.settings | settings)
            for trial in self.trials
            for settings in candidates
        ]
        return list({trial.name: trial for trial in trials}.values())


def read_study(
    source: Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    seeds: Any = None,
    only: Mapping[str, Any] | None = None,
    importing: bool = True,
) -> Study:
    """A study from its file, or from the keys and values of one.

    `changes` are settings that override those of the file. `seeds` replace its seeds, and `only` keeps the trials with
    one of these values (`{"sigma": [0.2, 0.3], "model": "mlr"}`); the study's `whole` still has all trials.
    """
    file = YamlFile(source)
    stem = file.path.stem if file.path else as_folder(str(file.content.get("title") or "study"))
    content = _checked(file)
    expansion = Expansion(file, content, dict(changes or {}), importing)
    whole = expansion.trials()
    search = checked_search(file, content.search, whole[0].experiment, importing) if content.search else None
    check_claims(file, content.claims, whole)
    if importing:
        _refuse_unknown_quantities(file, content.plot, whole)
    return Study(
        name=as_folder(stem),
        title=content.title or stem,
        trials=chosen(whole if seeds is None else expansion.trials(seeds), only or {}),
        axes=expansion.axes(whole, search.space if search else ()),
        baseline=content.baseline,
        targets=sorted({*content.targets, *([search.target] if search else [])}),
        plot=content.plot,
        layout=_layout(file, content),
        cpus_per_trial=content.cpus_per_trial,
        gpus_per_trial=content.gpus_per_trial,
        search=search,
        text=file.text if file.path else yaml.safe_dump(file.content, sort_keys=False).encode(),
        importing=importing,
        cpu_fallback=content.cpu_fallback,
        patience=content.patience,
        fuse=content.fuse,
        whole=whole,
        claims=tuple(content.claims),
        selection=selection_words(only or {}, seeds),
    )


def _checked(file: YamlFile) -> File:
    try:
        return File(**file.content)
    except ValidationError as error:
        keys = error.errors()[0]["loc"]
        refused = refusal(error, nested=True)
        if error.errors()[0]["type"] == "extra_forbidden":
            hint = suggestion(str(keys[-1]), _block_at(keys[:-1]).model_fields)
            refused = InputError(refused.field, problem="unknown key", hint=hint)
        raise refused.at(file.place(*keys)) from None


def _refuse_unknown_quantities(file: YamlFile, plot: Plot, trials: Sequence[Trial]) -> None:
    """What a study plots must be a number that the rounds of some trial have."""
    known = {quantity.key for trial in trials for quantity in plotted(declared(trial.experiment))}
    for k, key in enumerate(plot.quantities):
        if key not in known:
            place = file.place("plot", "quantities", k)
            raise InputError("plot.quantities", key, "", suggestion(key, sorted(known)), place=place)


def _block_at(keys: Sequence[str | int]) -> type[Block]:
    blocks: dict[int | str, type[Block]] = {"grids": Grid, "plot": Plot, "search": Search, "claims": Claim}
    return File if not keys else Range if "space" in keys else blocks[keys[0]]


def _layout(file: YamlFile, content: File) -> Layout | None:
    if content.layout is None:
        return None
    known = [field.name for field in fields(Layout)]
    for key, value in content.layout.items():
        name, place = f"layout.{key}", file.place("layout", key)
        if key not in known:
            raise InputError(name, problem="unknown key", hint=suggestion(key, known), place=place)
        if not isinstance(value, (int, float, type(None))):
            raise InputError(name, value, "it must be a number", place=place)
    try:
        return Layout(**{"cpu_fallback": content.cpu_fallback, "patience": content.patience} | content.layout)
    except InputError as error:
        raise error.at(file.place("layout", error.field), f"layout.{error.field}") from None
