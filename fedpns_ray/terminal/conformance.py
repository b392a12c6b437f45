"""`fedpns conformance`: whether strategies satisfy the invariants."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rich.table import Table

from fedpns_ray.terminal.screen import console

WHAT = "Check strategies against the invariants that every strategy must keep."
RUNS_CODE = True
EXAMPLES = """examples:
  fedpns conformance                             all strategies
  fedpns conformance fedpns oort                 two of them
  fedpns conformance examples.newcomers:Newcomers    your own: a preset, or the class of one part
  fedpns conformance --json                      one object per strategy and invariant

Populations of a few nodes with made-up updates; nothing is trained. Exit code 0: all invariants hold, 1: some do not.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="a strategy, or package.module:Mine (default: all)")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def command(options: argparse.Namespace) -> int:
    from fedpns_ray.conformance.findings import findings
    from fedpns_ray.registry import PRESETS, find_preset

    names = list(dict.fromkeys(options.names)) or list(PRESETS)
    for name in names:  # all of them, before the first takes its time
        find_preset(name)
    found = [finding for name in names for finding in findings(name)]
    failed = [finding for finding in found if finding.result == "failed"]
    if options.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
        return 1 if failed else 0
    grid = Table(title="conformance", title_justify="left")
    for column in ("strategy", "passed", "failed", "not applicable"):
        grid.add_column(column, no_wrap=column == "strategy")
    for name in names:
        own = [finding for finding in found if finding.strategy == name]
        listed = {result: [f.invariant for f in own if f.result == result] for result in ("failed", "not applicable")}
        passed = sum(finding.result == "passed" for finding in own)
        grid.add_row(name, f"{passed} of {len(own)}", *map(", ".join, listed.values()))
    console.print(grid)
    for finding in found if options.names else failed:
        if finding.detail:
            console.print(f"{finding.strategy}: {finding.invariant}: {finding.detail}", soft_wrap=True)
    return 1 if failed else 0
