"""`fedpns same`: whether two runs are equal to the bit."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedpns_ray.terminal.screen import console

WHAT = "Tell whether two runs are the same to the bit, or where they diverge and why."
RUNS_CODE = False
EXAMPLES = """examples:
  fedpns same runs/laptop runs/cluster           equal, or the first round, node and field that differ
  fedpns same runs/a runs/b && echo "no change"  exit code 0: the same, 1: not the same, 2: cannot be compared
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("one", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("other", type=Path, metavar="RUN", help="another one")


def command(options: argparse.Namespace) -> int:
    from fedpns_ray.reporting.sameness import sameness

    found = sameness(options.one, options.other)
    console.print(str(found), soft_wrap=True)
    return 0 if found.same else 1
