"""A study file: a base experiment, axes, seeds, what to plot. Validated as a whole before anything starts.

    base: {dataset: mnist}                    settings that all trials share
    axes: {strategy: [fedpns, fedavg], sigma: [0.2, 0.3]}
    seeds: 1-5

A value of an axis may be several settings at once ({nodes: 500, fraction: 0.02}). `grids` lists several such blocks, each
on top of what stands above it; a trial that two of them name is one trial.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, field_validator

from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment, as_folder, drop_idle, folder_name, names_user_code
from fedpns_ray.runtime.layout import Layout
from fedpns_ray.strategies import KINDS, known_parameters
from fedpns_ray.study.seeds import parse_seeds
from fedpns_ray.yaml_file import Key, YamlFile

Settings = dict[str, Any]

PLOTTED = (
    "test_accuracy", "test_loss", "train_loss", "iid_probability", "expectation", "gradient_norm_iid",
    "gradient_norm_other", "gradient_norm_of_mean", "weight_divergence",
)  # fmt: skip
"""What a study can plot and tabulate, of all that a record holds."""


MOST_TRIALS = 100_000
"""Of one study: far more than anybody runs, and few enough to be held in memory."""


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Plot(_Block):
    """What to draw; what is left out follows from the axes."""

    quantities: list[str] = ["test_accuracy"]
    """One row of panels each, and one column of the table."""
    lines: list[str] = []
    """Axes told apart by colour; the others make panels. Default: strategy, or the first axis."""
    over: Literal["round", "simulated_seconds", "bytes_up", "bytes_down"] = "round"
    """What is drawn to the right: rounds, or what they cost up to then, the mean over seeds."""

    @field_validator("quantities")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in PLOTTED:
                raise ValueError(f"{name!r} cannot be plotted; there are {', '.join(PLOTTED)}")
        return names


class Range(_Block):
    """Numbers to search through, in steps, so that equal suggestions are equal trials."""

    min: float
    max: float
    step: PositiveFloat


class Search(_Block):
    """Optuna and ASHA instead of a grid: the fewest rounds to a target accuracy."""

    space: dict[str, Range] = Field(min_length=1)
    """Settings to search over."""
    target: float = Field(gt=0, lt=1)
    """The accuracy to reach."""
    trials: PositiveInt = 30
    """Suggestions to try, each with the first seed."""
    grace: PositiveInt = 20
    """Rounds that every trial may run before the scheduler judges it."""
    confirm: PositiveInt = 3
    """The best suggestions, run to the end with all seeds, beside the base settings."""


class Grid(_Block):
    """A block of trials on top of the study's own base, axes and seeds."""

    base: Settings = {}
    axes: dict[str, list[Any]] = {}
    seeds: Any = None


class _File(Grid):
    """The keys of a study file."""

    title: str = ""
    grids: list[Grid] = []
    baseline: Settings = {"strategy": "fedavg"}
    """What differences are taken against: these settings changed, all else and the seed equal."""
    targets: list[float] = [0.8, 0.9]
    """Accuracies to count the rounds to."""
    plot: Plot = Plot()
    layout: dict[str, Any] | None = None
    """Spread each trial over node actors; the keys are those of Layout. Default: a trial is one process."""
    cpus_per_trial: PositiveFloat = 1.0
    gpus_per_trial: float | None = Field(None, ge=0)
    cpu_fallback: bool = False
    """Train on the CPU where a trial is given a GPU but torch there sees none; otherwise that is refused."""
    search: Search | None = None

    @field_validator("targets")
    @classmethod
    def _accuracies(cls, targets: list[float]) -> list[float]:
        for target in targets:
            if not 0 < target < 1:
                raise ValueError(f"{target} is not an accuracy; it must be between 0 and 1")
        return targets


KEYS = tuple(dict.fromkeys(key for block in (_File, Plot, Search, Range) for key in block.model_fields))


@dataclass(frozen=True)
class Trial:
    """One experiment with one seed, known by its configuration."""

    experiment: Experiment
    settings: Settings = field(compare=False)
    """As the study named them, before what the experiment does not use fell away."""

    @cached_property
    def name(self) -> str:
        return folder_name(self.experiment)


@dataclass(frozen=True)
class Study:
    """A study, ready to run: every trial valid, in the order in which they should run."""

    name: str
    title: str
    trials: list[Trial]
    axes: list[str]
    """The settings that tell trials apart, in the file's order; without the seed."""
    baseline: Settings
    targets: list[float]
    plot: Plot
    layout: Layout | None
    cpus_per_trial: float
    gpus_per_trial: float | None
    search: Search | None
    text: bytes = field(default=b"", repr=False)
    """The file as it is."""
    importing: bool = True
    """Whether parts of the user's own may be imported: for running, never for reading."""
    cpu_fallback: bool = False
    """Whether trials may train on the CPU where they were given a GPU that torch cannot use."""

    def partner(self, trial: Trial, others: Mapping[str, Experiment]) -> str | None:
        """The name of the experiment that a trial is compared with, if it is among the others (and not itself)."""
        settings = trial.settings | self.baseline
        if set(self.baseline) & {"strategy", *KINDS} and not names_user_code(self.baseline):
            foreign = set(trial.experiment.parameters) - set(known_parameters())  # of a part of the user's own
            settings = {key: value for key, value in settings.items() if key not in foreign}
        baseline = _described(settings, self.importing)
        name: str | None = folder_name(baseline)
        if name not in others and not baseline.imported:
            name = next((other for other, theirs in others.items() if baseline.agrees_with(theirs)), None)
        return name if name in others and name != trial.name else None

    @property
    def grace(self) -> int:
        """Of a search: rounds before a trial is judged. All of them, so nobody is stopped early, where it was made shorter."""
        assert self.search is not None
        return min(self.search.grace, self.trials[0].experiment.rounds)

    def confirmation(self, ranked: Sequence[Settings]) -> list[Trial]:
        """Of a search: its own settings and the best suggestions, each with all seeds."""
        assert self.search is not None
        candidates: list[Settings] = [{}, *ranked[: self.search.confirm]]
        trials = [
            Trial(Experiment(**drop_idle(trial.settings | settings)), trial.settings | settings)
            for trial in self.trials
            for settings in candidates
        ]
        return list({trial.name: trial for trial in trials}.values())


def _described(settings: Settings, importing: bool) -> Experiment:
    """An experiment, ready to run; or, for reading, one that imports nothing."""
    used = drop_idle(settings, importing)
    return Experiment(**used) if importing else Experiment.recorded(used)


def read_study(
    source: Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    seeds: Any = None,
    importing: bool = True,
) -> Study:
    """A study from its file, or from the keys and values of one; `changes` are settings that win over them, `seeds`
    replace all of its seeds.
    """
    file = YamlFile(source)
    stem = file.path.stem if file.path else as_folder(str(file.content.get("title") or "study"))
    content = _checked(file)
    reader = _Reader(file, content, dict(changes or {}), seeds, importing)
    trials = reader.trials()
    return Study(
        name=as_folder(stem),
        title=content.title or stem,
        trials=trials,
        axes=reader.axes(trials),
        baseline=content.baseline,
        targets=sorted({*content.targets, *([content.search.target] if content.search else [])}),
        plot=content.plot,
        layout=reader.layout(),
        cpus_per_trial=content.cpus_per_trial,
        gpus_per_trial=content.gpus_per_trial,
        search=content.search,
        text=file.path.read_bytes() if file.path else yaml.safe_dump(file.content, sort_keys=False).encode(),
        importing=importing,
        cpu_fallback=content.cpu_fallback,
    )


def _checked(file: YamlFile) -> _File:
    try:
        return _File(**file.content)
    except ValidationError as error:
        first = error.errors()[0]
        keys = first["loc"]
        where = ".".join(str(key) for key in keys)
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(keys[-1]), KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_File.model_fields)}"
            raise file.error(f"{where}: unknown key; {hint}", *keys) from None
        message = first["msg"].replace("Input should be", "it must be").replace("Value error, ", "")
        raise file.error(f"{where}: {first['input']!r} is not allowed; {message}", *keys) from None


class _Reader:
    """From a checked file to trials, with the file's lines at hand."""

    def __init__(self, file: YamlFile, content: _File, changes: Settings, seeds: Any, importing: bool) -> None:
        self._file, self._content, self._changes, self._seeds = file, content, changes, seeds
        self._importing = importing

    def trials(self) -> list[Trial]:
        """Seed by seed, so that every comparison is complete for the first seeds before the last ones begin."""
        blocks: Sequence[Grid] = self._content.grids or [Grid()]
        self._refuse_too_many(blocks)
        found: dict[tuple[int, str], Trial] = {}
        used: set[str] = set()
        for k, block in enumerate(blocks):
            for order, trial in self._of_block(k, block):
                found.setdefault((order, trial.name), trial)
                used |= set(drop_idle(trial.settings, self._importing))
        self._refuse_useless(blocks, used)
        return [found[key] for key in sorted(found, key=lambda key: key[0])]

    def axes(self, trials: Sequence[Trial]) -> list[str]:
        """In the file's order: the settings that axes and grids name and that differ between trials."""
        blocks = [self._content, *self._content.grids]
        named = [key for block in blocks for axis, values in block.axes.items() for key in _keys_of(axis, values)]
        named += [key for block in self._content.grids for key in block.base]
        if self._content.search:
            named += list(self._content.search.space)
        named = [key for key in dict.fromkeys(named) if key not in self._changes and key not in ("seed", "rounds")]
        settings = [trial.experiment.settings() for trial in trials]
        return [key for key in named if self._content.search or len({str(s.get(key)) for s in settings}) > 1]

    def layout(self) -> Layout | None:
        if self._content.layout is None:
            return None
        known = tuple(Layout.__dataclass_fields__)
        for key in self._content.layout:
            if key not in known:
                raise self._file.error(f"layout.{key}: unknown key; there are {', '.join(known)}", "layout", key)
        try:
            return Layout(**{"cpu_fallback": self._content.cpu_fallback} | self._content.layout)
        except (InputError, TypeError) as error:
            raise self._file.error(f"layout: {error}", "layout") from None

    def _refuse_too_many(self, blocks: Sequence[Grid]) -> None:
        """Counted, not listed: a dozen long axes name more trials than a machine can hold."""
        count = 0
        for k, block in enumerate(blocks):
            axes = {**self._content.axes, **block.axes}
            count += len(self._seeds_of(k, block)) * math.prod(len(values) for values in axes.values())
            if count > MOST_TRIALS:
                place: tuple[Key, ...] = (
                    ("grids", k, "axes") if block.axes else ("axes",) if axes else ("grids", k, "seeds")
                )
                raise self._file.error(
                    f"{place[-1]}: with all seeds these are {count:,} trials, and {MOST_TRIALS:,} are the most", *place
                )

    def _of_block(self, k: int, block: Grid) -> Iterator[tuple[int, Trial]]:
        base = self._content.base | block.base
        axes = {**self._content.axes, **block.axes}
        seeds = self._seeds_of(k, block)
        combinations = [dict(_flat(zip(axes, values, strict=True))) for values in itertools.product(*axes.values())]
        for order, seed in enumerate(seeds):
            for values in combinations:
                settings = base | values | self._changes | {"seed": seed}
                try:
                    yield order, Trial(_described(settings, self._importing), settings)
                except InputError as error:
                    raise self._locate(error, k) from None

    def _seeds_of(self, k: int, block: Grid) -> list[int]:
        if self._seeds is not None:
            return parse_seeds(self._seeds)
        for seeds, keys in ((block.seeds, ("grids", k, "seeds")), (self._content.seeds, ("seeds",))):
            if seeds is not None:
                try:
                    return parse_seeds(seeds)
                except InputError as error:
                    raise self._file.error(str(error), *keys) from None
        return [1]

    def _locate(self, error: InputError, k: int) -> InputError:
        """Experiments say which key is wrong; the file knows where it stands."""
        key = str(error).partition(":")[0]
        if key in self._changes:
            return error
        return self._file.error(str(error), *self._place(key, k))

    def _place(self, key: str, k: int) -> tuple[Key, ...]:
        blocks: list[tuple[tuple[Key, ...], Grid]] = [((), self._content)]
        if self._content.grids:
            blocks.insert(0, (("grids", k), self._content.grids[k]))
        for prefix, block in blocks:
            for axis, values in block.axes.items():
                if key in _keys_of(axis, values):
                    return (*prefix, "axes", axis)
            if key in block.base:
                return (*prefix, "base", key)
        return ("grids", k)

    def _refuse_useless(self, blocks: Sequence[Grid], used: set[str]) -> None:
        """A setting that no trial uses is a mistake; one that some trials use is not."""
        for k, block in enumerate(blocks):
            base = self._content.base | block.base
            axes = {**self._content.axes, **block.axes}
            for key in (*base, *(key for axis, values in axes.items() for key in _keys_of(axis, values))):
                if key not in used and key not in self._changes:
                    raise self._file.error(f"{key}: no trial of this study uses it", *self._place(key, k))
        for key in self._changes:
            if key not in used:
                raise InputError(f"{key}: no trial of {self._file.path or 'this study'} uses it")


def _flat(values: Any) -> Iterator[tuple[str, Any]]:
    """(axis, value) → settings; a value may be several settings at once."""
    for axis, value in values:
        if isinstance(value, Mapping):
            yield from value.items()
        else:
            yield axis, value


def _keys_of(axis: str, values: Sequence[Any]) -> list[str]:
    """The settings that an axis moves."""
    keys = [str(key) for value in values if isinstance(value, Mapping) for key in value]
    plain = [axis] if any(not isinstance(value, Mapping) for value in values) else []
    return list(dict.fromkeys(plain + keys))
