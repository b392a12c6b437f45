"""What a search may name: algorithms and schedulers, and the schedulers of Ray Tune that a study refuses.

Classes are imported when they are needed: reading a study file imports neither Ray nor the user's code.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from fedpns_ray.core.user_code import import_path
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.validation import unknown_name


@dataclass(frozen=True)
class Named:
    """A class, and in one line what it does, or why it is refused."""

    path: str
    what: str


ALGORITHMS = {
    "optuna": Named("ray.tune.search.optuna:OptunaSearch", "learns from every trial where to look next (TPE)"),
    "random": Named("fedpns_ray.study.searchers:RandomSearch", "draws points of the space, none twice"),
    "grid": Named("fedpns_ray.study.searchers:GridSearch", "tries every point of the space, in a fixed order"),
}
SCHEDULERS = {
    "asha": Named("ray.tune.schedulers:ASHAScheduler", "at a few rounds, stops all but the best quarter so far"),
    "median": Named("ray.tune.schedulers:MedianStoppingRule", "stops what is worse than the median of the others"),
    "none": Named("ray.tune.schedulers:FIFOScheduler", "stops nothing: all run to the target or the last round"),
}

_PAIRING = "so that no trial would be one experiment: none could be paired with the baseline, or run again to the bit"
_COPIES = f"it changes settings in mid-run and copies weights between trials, {_PAIRING}"
_REPLAYS = f"it changes settings in mid-run, {_PAIRING}"
_PAUSES = "it sets trials aside until others have caught up, while here every trial keeps its worker to its end"
REFUSED = {
    "pbt": Named("ray.tune.schedulers:PopulationBasedTraining", _COPIES),
    "pb2": Named("ray.tune.schedulers:PopulationBasedTraining", _COPIES),
    "pbt_replay": Named("ray.tune.schedulers:PopulationBasedTrainingReplay", _REPLAYS),
    "hyperband": Named("ray.tune.schedulers:HyperBandScheduler", _PAUSES),
}
"""Schedulers that are refused, with their subclasses."""

NAMES = {"algorithm": ALGORITHMS, "scheduler": SCHEDULERS}
BASES = {"algorithm": "ray.tune.search:Searcher", "scheduler": "ray.tune.schedulers:TrialScheduler"}
GIVEN = {
    "algorithm": ("space", "metric", "mode", "seed", "random_state", "random_state_seed"),
    "scheduler": ("time_attr", "metric", "mode", "max_t", "grace_period"),
}
"""What a user's class is constructed with, as far as its constructor takes it."""


def check_name(kind: str, name: str) -> None:
    """Refuse a name that is unknown or not allowed; an import path is not followed."""
    if kind == "scheduler" and name in REFUSED:
        raise _refusal(name, REFUSED[name])
    if name not in NAMES[kind] and ":" not in name:
        raise unknown_name(f"search.{kind}", name, NAMES[kind], "package.module:Class")


def find_class(kind: str, name: str) -> type[Any]:
    """The class of this name or import path, if a search can use it."""
    field = f"search.{kind}"
    if name in NAMES[kind]:
        return import_path(NAMES[kind][name].path, field)
    found, base = import_path(name, field), import_path(BASES[kind], field)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(field, Shown(name), problem=f"is not a subclass of {BASES[kind].replace(':', '.')}")
    if kind == "scheduler":
        for refused in REFUSED.values():
            if issubclass(found, import_path(refused.path, field)):
                raise _refusal(name, refused)
    needed = [
        key for key, given in parameters(found).items() if given.default is given.empty and key not in GIVEN[kind]
    ]
    if needed:
        problem = f"needs {' and '.join(needed)}, which a study file cannot give"
        raise InputError(field, Shown(name), problem=problem, hint="name a subclass whose constructor sets it")
    return found


def _refusal(name: str, refused: Named) -> InputError:
    return InputError("search.scheduler", Shown(name), refused.what, f"choose from {', '.join(SCHEDULERS)}")


def construct(kind: type[Any], offered: dict[str, Any]) -> Any:
    """An instance, given those of the offered arguments that its constructor takes."""
    taken = parameters(kind)
    return kind(**{key: value for key, value in offered.items() if key in taken})


def parameters(kind: type[Any]) -> dict[str, inspect.Parameter]:
    """The named parameters of a constructor, and of those above it that it passes `**kwargs` on to."""
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        own = inspect.signature(vars(base)["__init__"]).parameters if "__init__" in vars(base) else {}
        named = [p for p in list(own.values())[1:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        found = {p.name: p for p in named} | found
        if own and not any(p.kind is p.VAR_KEYWORD for p in own.values()):
            break
    return found
