"""`fedpns strategies`: what there is to choose from."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from rich.table import Table

from fedpns_ray.core.interfaces import Part
from fedpns_ray.core.metrics import METRICS, NODES
from fedpns_ray.registry import DATA_KINDS, PART_KINDS, PARTS, PRESETS, describe_default, parameters_of
from fedpns_ray.terminal.screen import console
from fedpns_ray.third_party import offers

WHAT = "List strategies and parts, with parameters and defaults."
RUNS_CODE = False
EXAMPLES = """examples:
  fedpns strategies                                              all of them, and the parts they are made of
  fedpns run --strategy oort --help                              the parameters of one, explained
  fedpns compare --strategies oort,fedavg --rounds 20            one against another
"""


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
    kinds = [kind for kind in PART_KINDS if kind not in DATA_KINDS]
    for kind in kinds:
        grid = Table(title=f"{kind} (--{kind})", title_justify="left")
        for column in ("name", "what it does", "parameters and defaults"):
            grid.add_column(column, no_wrap=column == "name")
        for name, part in PARTS[kind].items():
            takers = parameters_of({kind: name})
            parameters = "\n".join(f"{key} = {describe_default(part, it.field)}" for key, it in takers.items())
            grid.add_row(name, first_line(part), parameters)
        console.print(grid)
    grid = Table("name", "what is measured", "on", title="metrics (--metrics a,b)", title_justify="left")
    for name, metric in METRICS.items():
        grid.add_row(name, first_line(metric), "the data of nodes" if metric.of == NODES else metric.of)
    console.print(grid)
    print_offers(("strategy", *kinds, "model", "loss", "metric"))
    return 0


def first_line(part: type[Part]) -> str:
    """What a part is, in its own words."""
    return (part.__doc__ or "").strip().splitlines()[0]


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
