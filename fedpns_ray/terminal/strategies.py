"""`fedpns strategies`: what there is to choose from."""

from __future__ import annotations

import argparse

from rich.table import Table

from fedpns_ray.registry import PARTS, PRESETS, describe_default, find_part, parameters_of
from fedpns_ray.terminal.screen import console

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
    for kind, parts in PARTS.items():
        grid = Table(title=f"{kind} (--{kind})", title_justify="left")
        for column in ("name", "what it does", "parameters and defaults"):
            grid.add_column(column, no_wrap=column == "name")
        for name in parts:
            part = find_part(kind, name)
            takers = parameters_of({kind: name})
            parameters = "\n".join(f"{key} = {describe_default(part, it.field)}" for key, it in takers.items())
            grid.add_row(name, (part.__doc__ or "").strip().splitlines()[0], parameters)
        console.print(grid)
    return 0
