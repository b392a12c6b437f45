"""From the blocks of a study file to its trials."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from fedpns_ray.errors import InputError, Shown
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import folder_name
from fedpns_ray.settings import Settings, drop_idle
from fedpns_ray.study.seeds import parse_seeds
from fedpns_ray.validation import suggestion
from fedpns_ray.yaml_file import Key, YamlFile

MOST_TRIALS = 100_000
"""The most trials of one study: far more than are ever needed, and few enough to be held in memory."""


class Block(BaseModel):
    """A mapping in a study file, with known keys only."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Grid(Block):
    """A block of trials: every combination of the axes' values, on top of a base, with every seed."""

    base: Settings = {}
    axes: dict[str, list[Any]] = {}
    seeds: Any = None

    def on_top_of(self, below: Grid) -> Grid:
        seeds = below.seeds if self.seeds is None else self.seeds
        return Grid(base=below.base | self.base, axes={**below.axes, **self.axes}, seeds=seeds)

    @property
    def named(self) -> list[str]:
        """The settings that the axes name."""
        return [key for axis, values in self.axes.items() for key in _keys_of(axis, values)]

    def combinations(self) -> list[Settings]:
        products = itertools.product(*self.axes.values())
        return [dict(_flat(zip(self.axes, values, strict=True))) for values in products]


class Grids(Grid):
    """Several blocks of trials, each on top of a base, axes and seeds that they share."""

    grids: list[Grid] = []


@dataclass(frozen=True)
class Trial:
    """One experiment with one seed, identified by its configuration."""

    experiment: Experiment
    settings: Settings = field(compare=False)
    """As the study named them, including those that the experiment does not use."""

    @cached_property
    def name(self) -> str:
        return folder_name(self.experiment)


def described(settings: Settings, importing: bool) -> Experiment:
    """An experiment, ready to run; or, for reading, one that imports nothing."""
    used = drop_idle(settings, importing)
    return Experiment(**used) if importing else Experiment.recorded(used)


class Expansion:
    """The trials that blocks describe; errors name the line of the study file."""

    def __init__(self, file: YamlFile, content: Grids, changes: Settings, importing: bool) -> None:
        self._file, self._content, self._changes, self._importing = file, content, changes, importing
        self._blocks = [grid.on_top_of(content) for grid in content.grids or [Grid()]]

    def trials(self, seeds: Any = None) -> list[Trial]:
        """All trials, seed by seed: every comparison is complete for the first seeds before the last ones start.

        A trial that two blocks describe is one trial. `seeds` replace those of the file.
        """
        listed = [self._seeds_of(k) if seeds is None else parse_seeds(seeds) for k in range(len(self._blocks))]
        self._refuse_too_many([len(some) for some in listed])
        found: dict[tuple[int, str], Trial] = {}
        used: set[str] = set()
        for k, block in enumerate(self._blocks):
            for order, settings in _ordered(block, self._changes, listed[k]):
                try:
                    trial = Trial(described(settings, self._importing), settings)
                except InputError as error:
                    raise self._located(error, k) from None
                found.setdefault((order, trial.name), trial)
                used |= set(drop_idle(settings, self._importing))
        self._refuse_useless(used)
        return [found[key] for key in sorted(found, key=lambda key: key[0])]

    def axes(self, trials: Sequence[Trial], searched: Collection[str] = ()) -> list[str]:
        """In the file's order: settings that axes and grids name and that differ between trials or are searched."""
        named = [key for block in (self._content, *self._content.grids) for key in block.named]
        named += [key for block in self._content.grids for key in block.base]
        named += searched
        named = [key for key in dict.fromkeys(named) if key not in self._changes and key not in ("seed", "rounds")]
        settings = [trial.experiment.settings() for trial in trials]
        return [key for key in named if searched or len({str(s.get(key)) for s in settings}) > 1]

    def _seeds_of(self, k: int) -> list[int]:
        seeds = self._blocks[k].seeds
        own = self._content.grids and self._content.grids[k].seeds is not None
        try:
            return parse_seeds(1 if seeds is None else seeds)
        except InputError as error:
            raise error.at(self._file.place(*(("grids", k) if own else ()), "seeds")) from None

    def _refuse_too_many(self, seeds: Sequence[int]) -> None:
        """Trials are counted, not listed: a dozen long axes describe more of them than a machine can hold."""
        count = 0
        for k, block in enumerate(self._blocks):
            count += seeds[k] * math.prod(len(values) for values in block.axes.values())
            if count > MOST_TRIALS:
                own = self._content.grids[k].axes if self._content.grids else {}
                keys: tuple[Key, ...] = ("axes",) if block.axes else ("grids", k, "seeds")
                place = self._file.place(*(("grids", k, "axes") if own else keys))
                allowed = f"at most {MOST_TRIALS:,} are allowed"
                problem = f"with all seeds these are {count:,} trials"
                raise InputError(str(keys[-1]), allowed=allowed, problem=problem, place=place)

    def _refuse_useless(self, used: set[str]) -> None:
        """A setting that no trial uses is a mistake; one that some trials use is not."""
        for k, block in enumerate(self._blocks):
            for key in (*block.base, *block.named):
                if key not in used and key not in self._changes:
                    raise self._located(InputError(key, problem="no trial of this study uses it"), k)
        for key in self._changes:
            if key not in used:
                raise InputError(key, problem=f"no trial of {self._file.path or 'this study'} uses it")

    def _located(self, error: InputError, k: int) -> InputError:
        """The error with its place: an experiment's error names the field, and the file knows where that is written."""
        return error if error.field in self._changes else error.at(self._file.place(*self._keys_to(error.field, k)))

    def _keys_to(self, name: str, k: int) -> tuple[Key, ...]:
        """The keys under which block k, or what it is on top of, names a setting."""
        blocks: list[tuple[tuple[Key, ...], Grid]] = [((), self._content)]
        if self._content.grids:
            blocks.insert(0, (("grids", k), self._content.grids[k]))
        for prefix, block in blocks:
            for axis, values in block.axes.items():
                if name in _keys_of(axis, values):
                    return (*prefix, "axes", axis)
            if name in block.base:
                return (*prefix, "base", name)
        return ("grids", k)


def chosen(trials: list[Trial], only: Mapping[str, Any]) -> list[Trial]:
    """The trials that have one of the wanted values of every key; a key or value that no trial has is refused."""
    if not only:
        return trials
    settings = [trial.experiment.all_settings() for trial in trials]
    wanted = {key: _texts(values) for key, values in only.items()}
    for key, texts in wanted.items():
        there = list(dict.fromkeys(_as_text(own[key]) for own in settings if key in own))
        if not there:
            known = dict.fromkeys(name for own in settings for name in own)
            raise InputError("only", key, problem="is not a setting of any trial", hint=suggestion(key, known))
        for text in texts:
            if text not in there:
                allowed = f"choose from {', '.join(there)}"
                raise InputError("only", allowed=allowed, problem=f"no trial has {key} {text}")
    kept = [
        trial
        for trial, own in zip(trials, settings, strict=True)
        if all(key in own and _as_text(own[key]) in texts for key, texts in wanted.items())
    ]
    if not kept:
        given = Shown(" ".join(f"{key}={','.join(texts)}" for key, texts in wanted.items()))
        raise InputError("only", given, problem="leaves no trial")
    return kept


def selection_words(only: Mapping[str, Any], seeds: Any) -> str:
    """`model=mlr, sigma=0.2,0.3, seeds=1-2`."""
    words = {key: value if isinstance(value, list) else [value] for key, value in only.items()}
    words |= {} if seeds in (None, "") else {"seeds": seeds if isinstance(seeds, list) else [seeds]}
    return ", ".join(f"{key}={','.join(map(str, values))}" for key, values in words.items())


def _texts(values: Any) -> list[str]:
    return [_as_text(value) for value in ([values] if isinstance(values, (str, int, float)) else values)]


def _as_text(value: Any) -> str:
    """1, 1.0 and "1" are the same; so are True and "true"."""
    text = str(value).strip()
    try:
        return str(int(text))  # exact for the largest seeds
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text.lower() if text in ("True", "False") else text
    return str(int(number)) if number.is_integer() else repr(number)


def _ordered(block: Grid, changes: Settings, seeds: Sequence[int]) -> Iterator[tuple[int, Settings]]:
    """The settings of a block's trials, each with the position of its seed."""
    combinations = block.combinations()
    for order, seed in enumerate(seeds):
        for values in combinations:
            yield order, block.base | values | changes | {"seed": seed}


def _flat(values: Any) -> Iterator[tuple[str, Any]]:
    """(axis, value) → settings; a value may be several settings at once."""
    for axis, value in values:
        if isinstance(value, Mapping):
            yield from value.items()
        else:
            yield axis, value


def _keys_of(axis: str, values: Sequence[Any]) -> list[str]:
    """The settings that an axis varies."""
    keys = [str(key) for value in values if isinstance(value, Mapping) for key in value]
    plain = [axis] if any(not isinstance(value, Mapping) for value in values) else []
    return list(dict.fromkeys(plain + keys))
