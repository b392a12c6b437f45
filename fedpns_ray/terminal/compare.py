"""`fedpns compare`: strategies side by side, as a study made from flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedpns_ray.study.seeds import parse_seeds
from fedpns_ray.terminal.flags import add_address, add_cpu_fallback, add_fuse, add_patience, patience
from fedpns_ray.terminal.setting_flags import add_settings, settings

if TYPE_CHECKING:
    from fedpns_ray.api import StudyOptions

WHAT = "Run several strategies and seeds side by side."
RUNS_CODE = True
EXAMPLES = """examples:
  fedpns compare --rounds 20                                     FedPNS against FedAvg on synthetic data, one seed
  fedpns compare --strategies fedpns,oort,afl --rounds 20 --seeds 1-3 --out runs/three
  fedpns compare --strategies fedpns,fedavg,bn2 --dataset mnist --sigma 0.2 --seeds 1-5 --out runs/fig3
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, without=("strategy", "seed"))
    parser.add_argument(
        "--strategies",
        default="fedpns,fedavg",
        metavar="NAME,NAME",
        help="names, separated by commas; the file's strategy is ignored (default: %(default)s)",
    )
    parser.add_argument("--seeds", help="such as 1-5 or 1,3,7 (default: the file's seed, or 1)")
    parser.add_argument(
        "--out", metavar="DIR", help="a folder or a URI for the results (default: runs/NAME, named after the settings)"
    )
    add_address(parser)
    add_cpu_fallback(parser)
    add_patience(parser)
    add_fuse(parser)
    parser.add_argument("--json", action="store_true", help="print the table as JSON, and nothing else")


def command(options: argparse.Namespace) -> int:
    from fedpns_ray.study.comparison import comparison
    from fedpns_ray.terminal.study import show_study

    given = settings(options)
    seeds = parse_seeds(options.seeds or str(given.get("seed", 1)))
    strategies = [name.strip() for name in options.strategies.split(",") if name.strip()]
    study = comparison(given, strategies, seeds)  # refused, if it must be, before pandas and torch are imported
    from fedpns_ray.api import resuming
    from fedpns_ray.records.storage import Storage

    out = options.out or Path("runs") / study.name
    how: StudyOptions = {
        "command": resuming(Storage(out)),
        "cpu_fallback": options.cpu_fallback,
        "patience": patience(options),
        "fuse": options.fuse,
    }
    return show_study(study, out, options, **how)
