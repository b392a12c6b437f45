"""`fedpns what-if`: one round of a run again, with other nodes."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedpns_ray.errors import InputError
from fedpns_ray.terminal.screen import console, messages

if TYPE_CHECKING:
    from fedpns_ray.replay import Cohort, WhatIf

WHAT = "Replay one round of a run with other nodes, to see what they would have done to the model."
RUNS_CODE = True
EXAMPLES = """examples:
  fedpns what-if runs/first --round 30 --draw 1,4,9         these nodes, beside the drawn ones and 5 random cohorts
  fedpns what-if runs/first --round 30 --selection oort     the nodes that another selection would draw, starting fresh
  fedpns what-if runs/first --round 30 --random 20 --json   the drawn nodes among 20 random cohorts

The round is replayed from a checkpoint of the run or, where none is old enough, from its start. Reads only.
Exit code 0: the recorded round was reproduced to the bit, 1: it was not, so nothing can be compared with it.
"""
MOST_NODES = 20
"""The most nodes of a cohort that the table lists."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run folder, such as that of a trial of a study")
    parser.add_argument("--round", required=True, metavar="T", help="the round to replay")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--draw", metavar="NODES", help="node ids, separated by commas")
    asked.add_argument("--selection", metavar="NAME", help="a selection that draws instead (see `fedpns strategies`)")
    parser.add_argument(
        "--random", default="5", metavar="K", help="random cohorts of the same size (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")


def command(options: argparse.Namespace) -> int:
    from fedpns_ray.replay import what_if

    round, random = (_whole(name, getattr(options, name)) for name in ("round", "random"))
    draw = [_whole("draw", text.strip()) for text in options.draw.split(",")] if options.draw is not None else []
    bar = Progress(
        TextColumn("replaying"), BarColumn(bar_width=30), TextColumn("{task.completed:.0f} of {task.total:.0f} rounds"),
        TimeRemainingColumn(), console=messages, transient=True, disable=options.json or not messages.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task("")
        found = what_if(
            options.run, round, draw, options.selection or "", random,
            lambda done, of: bar.update(task, completed=done, total=of),
        )  # fmt: skip
    if options.json:
        print(json.dumps(found.to_json()))
    else:
        _show(found)
    return 1 if found.difference else 0


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        allowed = "it must be node ids, separated by commas" if name == "draw" else "it must be a whole number"
        raise InputError(name, text, allowed)
    return int(text)


def _show(found: WhatIf) -> None:
    drawn = found.cohorts[0]
    way = f" ({found.replayed} rounds were run again to get there)" if found.replayed else ""
    said = "reproduced to the bit" if not found.difference else f"NOT reproduced: {found.difference}"
    console.print(f"round {found.round}, {said}{way}", soft_wrap=True)
    grid = Table(box=None, pad_edge=False)
    for column in ("cohort", "accuracy", "loss", "nodes", "excluded"):
        grid.add_column(column, justify="right" if column in ("accuracy", "loss") else "left")
    if found.before:
        grid.add_row("before the round", *_numbers(found.before), "", "")
    for cohort in found.cohorts:
        grid.add_row(cohort.name, *_numbers(cohort), _nodes(cohort.drawn), _nodes(cohort.excluded))
    console.print(grid)
    others = [one.loss for one in found.cohorts if one.name.startswith("random ") and one.loss is not None]
    if others and drawn.loss is not None:
        below = sum(drawn.loss < loss for loss in others)
        console.print(f"the drawn nodes give a lower loss than {below} of {len(others)} random cohorts")


def _numbers(cohort: Cohort) -> tuple[str, str]:
    if cohort.diverged:
        return "-", "diverged"
    return _form(cohort.accuracy, ".2%"), _form(cohort.loss, ".4f")


def _form(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _nodes(nodes: list[int]) -> str:
    shown = " ".join(map(str, nodes[:MOST_NODES])) or "none"
    return f"{shown} …" if len(nodes) > MOST_NODES else shown
