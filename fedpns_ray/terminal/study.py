"""`fedpns study`: a grid or a search, with a live table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text
from typing_extensions import Unpack

from fedpns_ray.study.study_file import Study, read_study
from fedpns_ray.terminal.flags import (
    add_address,
    add_cpu_fallback,
    add_fuse,
    add_patience,
    add_submit,
    add_time_limit,
    pairs,
    patience,
    time_limit,
)
from fedpns_ray.terminal.screen import console, message_level, messages, stop_on_signal
from fedpns_ray.terminal.words import noted_command

if TYPE_CHECKING:
    from fedpns_ray.api import StudyOptions

WHAT = "Run a study: a grid or a search, on this machine or a cluster."
RUNS_CODE = True
EXAMPLES = """examples:
  fedpns study tune/fig1.yaml                                    Figure 1 of the paper, into runs/fig1
  fedpns study tune/fig3.yaml --dry-run                          the trials, the resources, an estimate of the time
  fedpns study tune/fig3.yaml --only model=mlr --only sigma=0.2,0.3
  fedpns study tune/fig5.yaml --seeds 1-2 --rounds 20 --out /tmp/quick
  fedpns study tune/grid.yaml --address auto --out s3://bucket/grid
  fedpns study tune/grid.yaml --submit http://127.0.0.1:8265 --out s3://bucket/grid      sent to a cluster, see cluster/
  fedpns study tune/grid.yaml --submit http://127.0.0.1:8265 --out s3://bucket/grid --time-limit 2h
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", type=Path, metavar="STUDY", help="a study file, such as tune/fig1.yaml")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="a folder or a URI that all machines can see (default: runs/NAME, named after the study file)",
    )
    parser.add_argument("--seeds", help="instead of the file's, such as 1-5 or 1,3,7")
    parser.add_argument("--rounds", metavar="N", help="instead of the file's")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting that overrides the file's"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="KEY=VALUE,…", help="run only trials with one of these values"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="refuse to start from scratch: DIR must hold the study (which is resumed in any case)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print trials, resources and an estimate; run nothing")
    add_address(parser)
    add_submit(parser, "study", "report and tables")
    add_time_limit(parser)
    add_cpu_fallback(parser)
    add_patience(parser)
    add_fuse(parser)
    parser.add_argument("--json", action="store_true", help="print the table as JSON, and nothing else")
    parser.add_argument("--verbose", action="store_true", help="print Ray Tune's own log instead of the live table")
    parser.add_argument("--mlflow", metavar="URI", help="also log to this MLflow folder, database or tracking server")
    parser.add_argument("--wandb", metavar="PROJECT", help="also log to this Weights & Biases project")


def command(options: argparse.Namespace) -> int:
    study = described(options)  # a mistake in the file is refused before pandas and torch are imported
    time_limit(options)
    if options.submit:
        from fedpns_ray.terminal.submit import submit_study

        return submit_study(study, options)
    if options.dry_run:
        from fedpns_ray.api import prepared
        from fedpns_ray.terminal.dry_run import dry_run

        limits: StudyOptions = {"resume": options.resume, "cpu_fallback": options.cpu_fallback}
        return dry_run(*prepared(study, options.out, limits), options.address)
    return show_study(
        study,
        options.out,
        options,
        command=noted_command(options.words),
        resume=options.resume,
        cpu_fallback=options.cpu_fallback,
        patience=patience(options),
        fuse=options.fuse,
        verbose=options.verbose,
        mlflow=options.mlflow,
        wandb=options.wandb,
    )


def described(options: argparse.Namespace) -> Study:
    """The study that the flags describe: its file with settings and seeds overridden, and only some of its trials."""
    changes = pairs(options.set, "set") | ({"rounds": options.rounds} if options.rounds else {})
    only = {key: values.split(",") for key, values in pairs(options.only, "only").items()}
    return read_study(options.study, changes, options.seeds, only)


def show_study(study: Study, out: Path | str | None, options: argparse.Namespace, **how: Unpack[StudyOptions]) -> int:
    """Run a study with a live view; print its table, its verdict, and where its page is."""
    from fedpns_ray.api import run_study
    from fedpns_ray.progress.study_view import StudyView
    from fedpns_ray.reporting.study_result import LEAVES, TABLES

    view = StudyView(messages, study, message_level(quiet=options.json or how.get("verbose", False)))
    with stop_on_signal(time_limit(options)) as how["stop"]:
        found = run_study(study, out, address=options.address, progress=view, **how)
    if found.outcome.stopped:
        messages.print(f"stopped; the same command resumes from {found.storage}", soft_wrap=True)
        return 130
    if options.json:
        print(json.dumps(json.loads(found.table.to_json(orient="records"))))
    else:
        if len(found.table):
            _print_table(found.table, found.results)
            _print_card(found.results)
        if found.verdict:
            console.print(found.verdict, soft_wrap=True)
        for claim in found.claims:
            console.print(str(claim), soft_wrap=True)
        leaves = LEAVES if len(found.table) else TABLES
        console.print(f"{', '.join(leaves)} and trials written to {found.storage}", soft_wrap=True)
        if len(found.table):
            console.print(f"open {str(found.storage).rstrip('/')}/{leaves[0]}", soft_wrap=True)
    return 1 if found.outcome.errors else 3 if found.diverged else 0


def _print_table(rows: Any, results: Any) -> None:
    from fedpns_ray.reporting.curves import line_axes
    from fedpns_ray.reporting.formatting import formatted
    from fedpns_ray.reporting.names import in_words
    from fedpns_ray.reporting.palette import looks
    from fedpns_ray.reporting.ranking import best, ranked

    rows = ranked(rows, results)
    header, body = formatted(rows, results)
    lines = line_axes(results.study)
    names = [in_words(row, lines) for row in rows.to_dict("records")]
    colours = {name: look.on_dark for name, look in looks(names).items()}
    title = (
        "mean over seeds ± half its 95 % interval; final: mean of the last 5 rounds; accuracies in %; the best in bold"
    )
    grid = Table(title="\n".join(filter(None, [results.label, title])), title_justify="left")
    for column in header:
        grid.add_column(column, justify="left" if column in results.study.axes else "right")
    for cells, name, winner in zip(body, names, best(rows, results), strict=True):
        styles = [colours[name] if column in lines else "" for column in header]
        grid.add_row(*(Text(cell, style) for cell, style in zip(cells, styles, strict=True)), style="bold" * winner)
    console.print(grid)


LEAST = 8
"""Letters in a column of the report card, whose titles take several lines."""


def _print_card(results: Any) -> None:
    """Whom each strategy drew and what that cost; with intervals in table.md and on the page.

    Columns that do not fit beside the others are printed below them: none is cut.
    """
    from fedpns_ray.reporting.report_card import report_card

    axes = list(results.study.axes)
    header, rows, _ = report_card(results.trials, axes, intervals=False)
    if not rows:
        return
    widths = [max(LEAST, *(len(it) for row in rows for it in (row[k], *name.split()))) for k, name in enumerate(header)]
    title = "whom the selection drew, and what drawing cost: means over seeds"
    for block in blocks(widths, len(axes), console.width):
        grid = Table(title=title, title_justify="left")
        for k in block:
            grid.add_column(header[k], justify="left" if k < len(axes) else "right", width=widths[k])
        for cells in rows:
            grid.add_row(*(Text(cells[k]) for k in block))
        console.print(grid)
        title = ""


def blocks(widths: Sequence[int], heads: int, width: int) -> list[list[int]]:
    """The columns of as many tables as it takes, each with the first `heads` columns."""
    own = 1 + sum(one + 3 for one in widths[:heads])  # a line and two spaces per column
    found: list[list[int]] = []
    left = 0
    for k, one in enumerate(widths[heads:], heads):
        if one + 3 > left or not found:
            found.append(list(range(heads)))
            left = width - own
        found[-1].append(k)
        left -= one + 3
    return found
