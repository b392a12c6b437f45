"""`fedpns report`: runs and studies as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedpns_ray.terminal.screen import console

WHAT = "Show runs and studies on one page."
RUNS_CODE = False
EXAMPLES = """examples:
  fedpns report runs/fig1 --out report.html                      a study as one page that opens anywhere, offline
  fedpns report runs/first runs/second --out report.html         two runs, side by side
  fedpns report runs/fig3 --out report.html --figures figures    also figures for a paper, as PDF and PNG
  fedpns report s3://bucket/fig3 --out report.html               a study that a cluster runs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="runs, studies, or folders of runs; URIs work too")
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="the page (default: %(default)s)"
    )
    parser.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="also write figures for a paper, as PDF and PNG, to this folder"
    )


def command(options: argparse.Namespace) -> int:
    from fedpns_ray.api import report

    written = report(*options.folders, out=options.out, figures=options.figures)
    if options.figures:
        names = ", ".join(written.figures)
        console.print(f"figures (PDF and PNG): {names}, written to {options.figures}", soft_wrap=True)
    for note in written.notes:
        console.print(note, soft_wrap=True)
    size = written.path.stat().st_size / 1e6
    console.print(f"{written.runs} runs, {size:.1f} MB, written to {written.path}", soft_wrap=True)
    return 0
