"""schema.json: the version of a run folder's format, and what its records hold.

The declarations of a run's parts are stored with its records, so that readers can plot them without importing any part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from fedpns_ray.core.interfaces import Part
from fedpns_ray.core.metrics import METRICS
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.errors import InputError, one_line
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.lines import is_number, parsed
from fedpns_ray.records.record import QUANTITIES, Record
from fedpns_ray.registry import PART_KINDS, PARTS, find_metric, find_part
from fedpns_ray.settings import listed

SCHEMA = 2
"""1: folders without schema.json. 2: quantities are declared, summaries name their schema and code."""
MADE_WITH = "made_with"


def declared(experiment: Experiment) -> tuple[Quantity, ...]:
    """What the records of an experiment hold: the core's quantities, then those of its parts."""
    described = experiment if experiment.imported else Experiment(**experiment.settings())
    parts = [(kind, find_part(kind, name)) for kind, name in described.all_parts.items()]
    return _declared(tuple(parts + [("metrics", find_metric(name)) for name in listed(described.metrics)]))


@cache
def _declared(parts: tuple[tuple[str, type[Part]], ...]) -> tuple[Quantity, ...]:
    found = {quantity.key: quantity for quantity in QUANTITIES}
    for kind, part in parts:
        for quantity in part.quantities:
            if quantity.key in vars(Record):
                raise InputError(
                    kind, part.name, f"its quantity {quantity.key!r} is a key of every record; choose another"
                )
            found[quantity.key] = quantity
    return tuple(found.values())


def known(experiment: Experiment) -> tuple[Quantity, ...]:
    """Like `declared`, but without importing user-defined parts: for folders that do not declare their quantities."""
    parts = [PARTS[kind].get(experiment.all_parts[kind], Part) for kind in PART_KINDS]
    parts += [METRICS.get(name, Part) for name in listed(experiment.metrics)]
    return united([QUANTITIES, *(part.quantities for part in parts)])


def united(several: Iterable[Iterable[Quantity]]) -> tuple[Quantity, ...]:
    """Every quantity once, in the order in which they are first declared."""
    return tuple({quantity.key: quantity for quantities in several for quantity in quantities}.values())


def plotted(quantities: Iterable[Quantity]) -> tuple[Quantity, ...]:
    """The quantities with one number per round."""
    return tuple(quantity for quantity in quantities if quantity.per == "round")


def to_json(quantities: Iterable[Quantity], made_with: Mapping[str, str | None] | None = None) -> bytes:
    """`made_with` is what the run is being made with: versions, code, hardware."""
    content: dict[str, Any] = {"schema": SCHEMA, "quantities": [asdict(quantity) for quantity in quantities]}
    return json.dumps(content | ({MADE_WITH: made_with} if made_with else {}), indent=1).encode() + b"\n"


def made_with_of(content: bytes | None) -> dict[str, Any]:
    """What a folder was made with; empty for older ones, which do not say."""
    found = parsed(content or b"")
    before = found.get(MADE_WITH) if isinstance(found, dict) else None
    return before if isinstance(before, dict) else {}


def differences(content: bytes | None, made_with: Mapping[str, str | None]) -> list[str]:
    """`torch was 2.12.0, is 2.13.0`: how a folder was made with something else."""
    return [f"{name} was {before}, is {now}" for name, before, now in changes(made_with_of(content), made_with)]


def changes(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What two folders were made with and is not the same: its name, and both values, in short."""
    names = [name for name in other if name in one and one[name] != other[name]]
    return [(name, _short(one[name]), _short(other[name])) for name in names]


def _short(value: object) -> str:
    """A digest by its first digits."""
    text = one_line(value, longest=80)
    return text[:12] if len(text) == 64 and text.isalnum() else text


def from_json(content: bytes | None, experiment: Experiment) -> tuple[Quantity, ...]:
    """The quantities that a folder declares; for an older folder or a damaged file, those that are known by name."""
    try:
        found = tuple(Quantity(**quantity) for quantity in parsed(content or b"")["quantities"])
    except (KeyError, TypeError):
        return known(experiment)
    return found if all(map(_is_whole, found)) else known(experiment)


def _is_whole(quantity: Quantity) -> bool:
    texts = (quantity.key, quantity.title, quantity.unit, quantity.better, quantity.per)
    return is_number(quantity.scale) and all(isinstance(text, str) for text in texts)
