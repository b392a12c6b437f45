"""`fedpns doctor`: what this machine or a cluster has, and what is missing."""

from __future__ import annotations

import argparse

from rich.table import Table

from fedpns_ray.errors import InputError, Shown
from fedpns_ray.terminal.screen import console

WHAT = "What this machine or a cluster has, what is missing, and what to do."
RUNS_CODE = False
EXAMPLES = """examples:
  fedpns doctor
  fedpns doctor --address auto --out s3://bucket/study                         on a machine of the cluster
  ray exec cluster/gpu.yaml 'fedpns doctor --address auto'                     from another machine
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="examine every machine of the Ray cluster there (auto: the one on this machine)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="with --address: also check that every machine can write a study there"
    )


def command(options: argparse.Namespace) -> int:
    from fedpns_ray.doctor.machine import examine

    if options.out and not options.address:
        raise InputError("out", Shown(options.out), problem="is not allowed without --address")
    if options.address:
        from fedpns_ray.doctor.cluster import examine_cluster

    grid = Table(title="doctor", title_justify="left")
    for column in ("", "what", "found", "what to do"):
        grid.add_column(column)
    findings = examine_cluster(options.address, options.out) if options.address else examine()
    for finding in findings:
        grid.add_row({True: "ok", False: "NO", None: "-"}[finding.ok], *finding[1:])
    console.print(grid)
    return 1 if any(finding.ok is False for finding in findings) else 0
