"""`fedpns verify`: finished trials run again, bit for bit."""

from __future__ import annotations

import argparse

from fedpns_ray.errors import InputError
from fedpns_ray.terminal.screen import console
from fedpns_ray.validation import whole_number

WHAT = "Run some finished trials again, in another layout, and compare the bits."
RUNS_CODE = True
EXAMPLES = """examples:
  fedpns verify runs/fig3                          three trials, chosen at random, on two actors
  fedpns verify runs/fig3 --sample 10 --seed 1     ten others
  fedpns verify runs/first --in-process            a single run, in this process

On other hardware, or with other versions, the last bits differ: final accuracies must then agree within 1 point (where
there are none, the last losses within 1 %).
Exit code 0: all trials hold, 1: some do not.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a study or a run")
    parser.add_argument("--sample", default="3", metavar="N", help="trials to run again (default: %(default)s)")
    parser.add_argument("--seed", default="7", metavar="N", help="decides which trials (default: %(default)s)")
    parser.add_argument("--in-process", action="store_true", help="in this process instead of on two actors")


def command(options: argparse.Namespace) -> int:
    from fedpns_ray.runtime.layout import Layout
    from fedpns_ray.verification import verify

    numbers = {name: _whole(name, getattr(options, name)) for name in ("sample", "seed")}
    held = []
    for one in verify(options.folder, **numbers, layout=None if options.in_process else Layout(actors=2)):
        console.print(str(one), soft_wrap=True)
        held.append(one.holds)
    console.print(f"{sum(held)} of {len(held)} hold")
    return 0 if all(held) else 1


def _whole(name: str, text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise InputError(name, text, "it must be a whole number")
    return number
