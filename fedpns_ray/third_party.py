"""Parts that installed packages offer: names for import paths, found without importing anything.

A package offers a part by an entry point of the group `fedpns_ray.parts`, named KIND.NAME:

    [project.entry-points."fedpns_ray.parts"]
    "selection.tides" = "tides.selection:TidalSelection"

Settings and records hold the import path, so that a run does not depend on what is installed where it is read.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple

GROUP = "fedpns_ray.parts"


class Offer(NamedTuple):
    """A part of an installed package."""

    kind: str
    """The kind of part, or strategy, or model."""
    name: str
    path: str
    """Its import path."""
    package: str
    """The package it comes from, with its version."""


@cache
def offers() -> tuple[Offer, ...]:
    """Every part that an installed package offers, in the order of kinds and names."""
    found = []
    for entry in entry_points(group=GROUP):
        kind, _, name = entry.name.partition(".")
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
        found.append(Offer(kind, name, entry.value.replace(" ", ""), package))
    return tuple(sorted(found))


def offered(kind: str, name: str) -> str:
    """The import path of an offered part; empty if nobody offers it."""
    return next((offer.path for offer in offers() if (offer.kind, offer.name) == (kind, name)), "")
