"""A named method: a choice of parts."""

from __future__ import annotations

from dataclasses import dataclass

from fedpns_ray.core.interfaces import Aggregation, Objective, Part, Selection, ServerOptimizer

KINDS: dict[str, type[Part]] = {
    "selection": Selection,
    "objective": Objective,
    "aggregation": Aggregation,
    "server": ServerOptimizer,
}
"""The parts of a strategy, with their base classes."""


@dataclass(frozen=True)
class Preset:
    """A published method: its parts under one name. A part is a registered name, an import path, or a class."""

    what: str
    selection: str | type[Part] = "random"
    objective: str | type[Part] = "plain"
    aggregation: str | type[Part] = "mean"
    server: str | type[Part] = "none"

    def __post_init__(self) -> None:
        """Configurations hold names, so a class is replaced by its name."""
        for kind in KINDS:
            part = getattr(self, kind)
            if isinstance(part, type):
                object.__setattr__(self, kind, _name_of(part))

    @property
    def parts(self) -> dict[str, str]:
        return {kind: str(getattr(self, kind)) for kind in KINDS}


def _name_of(part: type[Part]) -> str:
    """The registered name of a part of this package; the import path of any other."""
    built_in = part.__module__.startswith(f"{__package__}.")
    return part.name if built_in else f"{part.__module__}:{part.__qualname__}"
