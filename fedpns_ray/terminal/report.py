"""`fedpns report` and `fedpns watch`: parse, print, exit."""

from __future__ import annotations

import argparse
import shlex
import time
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.live import Live

from fedpns_ray.errors import InputError

REPORT_EXAMPLES = """examples:
  fedpns report runs/fig1 --out report.html                      a study as one page that opens anywhere, offline
  fedpns report runs/first runs/second --out report.html         two runs, side by side
  fedpns report runs/fig3 --out report.html --figures figures    also figures for a paper, as PDF and PNG
  fedpns report s3://bucket/fig3 --out report.html               a study that a cluster runs
"""
WATCH_EXAMPLES = """examples:
  fedpns watch runs/first                                        a run, live, until it ends or Ctrl-C
  fedpns watch runs/fig3 --html live.html                        a study, and its page made anew every few seconds
"""


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders", nargs="+", metavar="DIR", help="runs, studies, or folders of runs; a URI is read too"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="the page (default: %(default)s)"
    )
    parser.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="also figures for a paper, as PDF and PNG, into this folder"
    )


def report_command(options: argparse.Namespace, console: Console) -> int:
    from fedpns_ray.reporting.collecting import gather
    from fedpns_ray.reporting.page import write_page

    gathered = gather(options.folders)
    words = ["fedpns", "report", *(source.place for source in gathered.sources), "--out", str(options.out)]
    words += ["--figures", str(options.figures)] if options.figures else []
    write_page(gathered, options.out, shlex.join(words))
    if options.figures:
        from fedpns_ray.reporting.figures import write_figures

        names = sorted({path.stem for path in write_figures(gathered, options.figures)})
        console.print(f"figures (PDF and PNG): {', '.join(names)}, written to {options.figures}", soft_wrap=True)
    for note in gathered.notes:
        console.print(note, soft_wrap=True)
    size = options.out.stat().st_size / 1e6
    console.print(f"{len(gathered.runs)} runs, {size:.1f} MB, written to {options.out}", soft_wrap=True)
    return 0


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a run, a study, or a folder of runs; a URI is read too")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also the page, made anew as rounds come in")
    parser.add_argument("--every", default="2", metavar="SECONDS", help="how often to look (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help="look once and end")


def watch_command(options: argparse.Namespace, console: Console) -> int:
    """Ends with the last run, or with Ctrl-C; what it watches is never touched."""
    from fedpns_ray.reporting.collecting import gather
    from fedpns_ray.reporting.page import write_page
    from fedpns_ray.terminal.watch import ended, view

    every = _seconds(options.every)
    shown = -1
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        while True:
            began = time.monotonic()
            gathered = gather([options.folder])
            if live:
                live.update(view(gathered), refresh=True)
            rounds = sum(len(run.records) for run in gathered.runs)
            over = options.once or ended(gathered)
            if options.html and (rounds != shown or over):
                write_page(gathered, options.html, shlex.join(["fedpns", "report", gathered.sources[0].place]))
                shown = rounds
            if over:
                break
            spent = time.monotonic() - began
            time.sleep(max(every, 2 * spent))  # a large study is read less often, and never takes the machine
    if not console.is_terminal:
        console.print(view(gathered))
    return 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"every: {text!r} is not allowed; it must be seconds above 0")
    return seconds
