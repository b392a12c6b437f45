"""`fedpns data`: list, fetch and verify data sets, show populations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rich.table import Table

from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.registry import DATA_KINDS, PARTS, describe_default, official_datasets
from fedpns_ray.terminal.screen import console
from fedpns_ray.terminal.setting_flags import add_settings, settings
from fedpns_ray.terminal.strategies import first_line, print_offers
from fedpns_ray.validation import unknown_name

WHAT = "Data sets and populations: list, fetch, verify, show."
RUNS_CODE = False
EXAMPLES = """examples:
  fedpns data                            data sets and partitions, their parameters, and what is there
  fedpns data fetch mnist cifar10        download into FEDPNS_DATA, verified
  fedpns data verify                     check everything that is there against the official checksums
  fedpns data show --dataset mnist --sigma 0.2 --rho 2 --out population.png
  fedpns data show --dataset mnist --partition dirichlet --export part.parquet
"""
SHOW_EXAMPLES = """examples:
  fedpns data show --nodes 10                                                 the paper's synthetic data
  fedpns data show --dataset mnist --sigma 0.2 --rho 2 --out population.png
  fedpns data show --dataset mnist --partition dirichlet --concentration 0.1 --export part.parquet
"""
NAMES = tuple(official_datasets())
THE_PAPERS = ("mnist", "fashion-mnist", "cifar10")
"""What is fetched unless others are named."""
SHOWN = 60
"""The most nodes that are shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    for name, function, what in (
        ("fetch", _fetch, f"download and verify data sets (default: {', '.join(THE_PAPERS)})"),
        ("verify", _verify, "check the data sets that are there"),
    ):
        action = actions.add_parser(name, help=what, description=what)
        action.add_argument("names", nargs="*", metavar="DATASET", help=", ".join(NAMES))
        action.set_defaults(command=function)
    what = "draw a population: which node holds which labels"
    show = actions.add_parser("show", help=what, description=what, epilog=SHOW_EXAMPLES)
    add_settings(show, sections=("data",))
    show.add_argument("--out", type=Path, metavar="FILE", help="also save it as a picture (.png, .pdf or .svg)")
    show.add_argument(
        "--export", type=Path, metavar="FILE", help="also write node → sample indices (.json or .parquet)"
    )
    show.set_defaults(command=_show)


def command(options: argparse.Namespace) -> int:
    """Without an action: what there is to choose from."""
    from fedpns_ray.data.sources import data_root

    root = data_root()
    standing = {name: dataset.standing(root) or "not here" for name, dataset in official_datasets().items()}
    for kind in DATA_KINDS:
        grid = Table(title=f"{kind} (--{kind})", title_justify="left")
        columns = ("name", "what it is", "parameters and defaults", "from", *(["here"] if kind == "dataset" else []))
        for column in columns:
            grid.add_column(column, no_wrap=column in ("name", "from"))
        for name, part in PARTS[kind].items():
            parameters = "\n".join(f"{key} = {describe_default(part, key)}" for key in part.model_fields)
            here = [standing.get(name, "")] if kind == "dataset" else []
            grid.add_row(name, first_line(part), parameters, "built in", *here)
        console.print(grid)
    print_offers(DATA_KINDS)
    console.print(f"data root: {root} (FEDPNS_DATA); your own: --dataset package.module:Class", soft_wrap=True)
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from fedpns_ray.data.sources import data_root

    for name in _known(options.names or THE_PAPERS):
        console.print(f"{name}: {official_datasets()[name].fetch(data_root())}", soft_wrap=True)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from fedpns_ray.data.sources import data_root

    root, known = data_root(), official_datasets()
    names = options.names or [name for name, dataset in known.items() if dataset.standing(root)]
    if not names:
        raise InputError("dataset", problem=f"no data sets found in {root}", hint="`fedpns data fetch` downloads them")
    for name in _known(names):
        console.print(f"{name}: {known[name].verify(root)}", soft_wrap=True)
    return 0


def _known(names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if name not in NAMES:
            raise unknown_name("dataset", name, NAMES)
    return names


def _show(options: argparse.Namespace) -> int:
    from fedpns_ray.data import build_population
    from fedpns_ray.data.export import export, refuse_export
    from fedpns_ray.reporting.population import draw, picture_formats

    if options.out and options.out.suffix not in picture_formats():
        raise InputError("out", options.out, f"it must end in {', '.join(picture_formats())}")
    if options.config or any(":" in str(value) for value in vars(options).values()):  # it may name a user-defined part
        sys.path.append(str(Path.cwd()))  # last: what lies in this folder must not stand in for what is installed
    experiment = Experiment(**settings(options))
    if options.export:
        refuse_export(options.export, experiment.build_dataset())
    population = build_population(experiment)
    grid = Table(title=f"{experiment.dataset}: samples of each label on each node", title_justify="left")
    for column in ("node", "iid", *map(str, range(population.samples.classes)), "D_i", "q_dif"):
        grid.add_column(column, justify="right", no_wrap=True)
    rows = zip(population.described, population.histogram, population.q_dif, strict=True)
    for node, labels, q_dif in islice(rows, SHOWN):
        kind = "yes" if population.iid[node] else ""
        counts = (str(count) if count else "·" for count in labels)
        grid.add_row(str(node), kind, *counts, str(population.sizes[node]), f"{q_dif:.2f}")
    console.print(grid)
    if population.count > SHOWN:
        console.print(f"… and {population.count - SHOWN} more nodes")
    for key, value in population.summary().items():
        console.print(f"{key}: {value}", soft_wrap=True)
    if options.export:
        console.print(f"written; use it with {export(population, options.export)}", soft_wrap=True)
    if options.out:
        draw(population, experiment, options.out)
        console.print(f"written to {options.out}", soft_wrap=True)
    return 0
