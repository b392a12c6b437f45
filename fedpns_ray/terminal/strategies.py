"""`fedpns strategies`: what there is to choose from."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from rich.table import Table

from fedpns_ray.registry import KINDS, PARTS, PRESETS, describe_default, find_part, parameters_of
from fedpns_ray.terminal.screen import console
from fedpns_ray.third_party import offers

WHAT = "List strategies and parts, with parameters and defaults."
RUNS_CODE = False
EXAMPLES = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def command(options: argparse.Namespace) -> int:
    grid = Table(title="strategies (--strategy)", title_justify="left")
    for column in ("name", "what it does", "its parts", "parameters and defaults"):
        grid.add_column(column, no_wrap=column == "name")
    for name, preset in PRESETS.items():
        takers = parameters_of(preset.parts)
        parameters = ", ".join(f"{key} = {it.part.model_fields[it.field].default}" for key, it in takers.items())
        grid.add_row(name, preset.what, ", ".join(preset.parts.values()), parameters)
    console.print(grid)
    for kind in KINDS:
        parts = PARTS[kind]
        grid = Table(title=f"{kind} (--{kind})", title_justify="left")
        for column in ("name", "what it does", "parameters and defaults"):
            grid.add_column(column, no_wrap=column == "name")
        for name in parts:
            part = find_part(kind, name)
            takers = parameters_of({kind: name})
            parameters = "\n".join(f"{key} = {describe_default(part, it.field)}" for key, it in takers.items())
            grid.add_row(name, (part.__doc__ or "").strip().splitlines()[0], parameters)
        console.print(grid)
    print_offers(("strategy", *KINDS))
    return 0


def print_offers(kinds: Collection[str]) -> None:
    """The parts of these kinds that installed packages offer, if there are any."""
    found = [offer for offer in offers() if offer.kind in kinds]
    if not found:
        return
    grid = Table(title="from installed packages", title_justify="left")
    for column in ("kind", "name", "where it comes from", "import path"):
        grid.add_column(column)
    for offer in found:
        grid.add_row(offer.kind, offer.name, offer.package, offer.path)
    console.print(grid)
