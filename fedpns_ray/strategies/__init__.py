"""The registry: every selection, objective, aggregation and named strategy, with its parameters.

The command line, the configuration, the studies and the documentation read from here. A new part is one file, one
class and one line in `PARTS`; a part of your own needs no line: name it by its import path (`mypkg.mod:MyPart`).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from fedpns_ray.errors import InputError
from fedpns_ray.strategies.bn2 import LargestNormSelection
from fedpns_ray.strategies.fedavg import HalfSelection, MeanAggregation, PlainObjective, RandomSelection
from fedpns_ray.strategies.optimal_aggregation import OptimalAggregation
from fedpns_ray.strategies.parts import Aggregation, Nodes, Objective, Outcome, Part, Selection, Strategy, Updates
from fedpns_ray.strategies.pns import ProbabilisticSelection

__all__ = [
    "Aggregation", "KINDS", "Nodes", "Objective", "Outcome", "PARTS", "PRESETS", "Part", "Preset", "Selection",
    "Strategy", "Updates", "assemble", "find_part", "find_preset", "import_path", "known_parameters", "parameters_of",
]  # fmt: skip

KINDS: dict[str, type[Part]] = {"selection": Selection, "objective": Objective, "aggregation": Aggregation}

PARTS: dict[str, dict[str, type[Part]]] = {
    "selection": {p.name: p for p in (RandomSelection, HalfSelection, ProbabilisticSelection, LargestNormSelection)},
    "objective": {p.name: p for p in (PlainObjective,)},
    "aggregation": {p.name: p for p in (MeanAggregation, OptimalAggregation)},
}


@dataclass(frozen=True)
class Preset:
    """A published method: three parts under one name."""

    what: str
    selection: str = "random"
    objective: str = "plain"
    aggregation: str = "mean"


PRESETS: dict[str, Preset] = {
    "fedavg": Preset("random draw, mean over the drawn nodes (III-B)"),
    "optimal-aggregation": Preset("random draw, adverse updates excluded (Algorithm 1)", aggregation="optimal"),
    "fedpns": Preset("labelled nodes are drawn less often (Algorithm 2)", selection="pns", aggregation="optimal"),
    "bn2": Preset("many train, the largest updates are aggregated (V-D)", selection="largest-norm"),
}


def import_path(path: str, field: str) -> Any:
    """The object that `package.module:Name` names."""
    module, _, name = path.partition(":")
    if not re.fullmatch(r"[\w.]*\w", module) or not name.isidentifier():
        raise InputError(f"{field}: {path!r} is not allowed; it must be like package.module:Name")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # the module is the user's: whatever it raises is for them to see
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{field}: {path} cannot be imported ({reason})") from error


def find_preset(name: str) -> Preset:
    if name in PRESETS:
        return PRESETS[name]
    if ":" in name:
        preset = import_path(name, "strategy")
        if isinstance(preset, Preset):
            return preset
        raise InputError(f"strategy: {name} is not a fedpns_ray.strategies.Preset")
    raise InputError(f"strategy: {name!r} is unknown; there are {', '.join(PRESETS)}, or package.module:NAME")


def find_part(kind: str, name: str) -> type[Part]:
    if name in PARTS[kind]:
        return PARTS[kind][name]
    if ":" in name:
        part = import_path(name, kind)
        if isinstance(part, type) and issubclass(part, KINDS[kind]):
            return part
        raise InputError(f"{kind}: {name} is not a subclass of fedpns_ray.strategies.{KINDS[kind].__name__}")
    raise InputError(f"{kind}: {name!r} is unknown; there are {', '.join(PARTS[kind])}, or package.module:Class")


def parameters_of(parts: Mapping[str, str]) -> dict[str, type[Part]]:
    """Parameter name → the part that takes it, for a choice of parts (kind → name)."""
    takers: dict[str, type[Part]] = {}
    for kind in KINDS:
        part = find_part(kind, parts[kind])
        for field in part.model_fields:
            if field in takers:
                raise InputError(
                    f"{kind}: {parts[kind]!r} is not allowed; {takers[field].name} has a parameter {field} too"
                )
            takers[field] = part
    return takers


def known_parameters() -> dict[str, list[type[Part]]]:
    """Every parameter of every registered part, with the parts that take it."""
    known: dict[str, list[type[Part]]] = {}
    for parts in PARTS.values():
        for part in parts.values():
            for field in part.model_fields:
                known.setdefault(field, []).append(part)
    return known


def describe_default(part: type[Part], parameter: str) -> str:
    """`2.0`, or `mean (mean|sum)` where there is a choice."""
    field = part.model_fields[parameter]
    choices = get_args(field.annotation)
    allowed = f" ({'|'.join(map(str, choices))})" if choices and isinstance(choices[0], str) else ""
    return f"{field.default}{allowed}"


def assemble(parts: Mapping[str, str], parameters: Mapping[str, Any]) -> Strategy:
    """The strategy that these parts and parameters describe, before its first round."""

    def make(kind: str) -> Any:
        part = find_part(kind, parts[kind])
        return part(**{key: value for key, value in parameters.items() if key in part.model_fields})

    return Strategy(make("selection"), make("objective"), make("aggregation"))
