"""`fedpns run`: one experiment, with a progress bar."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from fedpns_ray.errors import DivergedError, InputError, Shown
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import folder_name
from fedpns_ray.records.record import COSTS
from fedpns_ray.runtime.layout import Layout
from fedpns_ray.terminal.flags import (
    add_address,
    add_cpu_fallback,
    add_patience,
    add_submit,
    add_time_limit,
    patience,
    time_limit,
)
from fedpns_ray.terminal.screen import console, message_level, messages, stop_on_signal
from fedpns_ray.terminal.setting_flags import add_settings, settings
from fedpns_ray.validation import whole_number

if TYPE_CHECKING:
    from fedpns_ray.records.result import Result

WHAT = "Run one experiment, or resume one."
RUNS_CODE = True
EXAMPLES = """examples:
  fedpns run --rounds 20 --out runs/first              FedPNS on the paper's synthetic data, no download
  fedpns run --strategy oort --devices log-normal --rounds 20 --in-process     without Ray, on simulated devices
  fedpns run runs/first/config.yaml --seed 2 --json    settings from a file, one changed; the summary to stdout

with the paper's data, one actor per node, on GPUs, on a cluster:
  fedpns run --dataset mnist --sigma 0.2 --rho 1 --out runs/mnist
  fedpns run --dataset mnist --nodes-per-actor 1 --out runs/actors
  fedpns run --dataset mnist --gpus-per-actor 0.25 --address auto
  fedpns run --dataset mnist --submit http://127.0.0.1:8265 --out /home/ray/first --time-limit 1h
"""
NUMBERS = {"actors": int, "nodes_per_actor": int, "gpus_per_actor": float, "cpus_per_actor": float}
"""Flags of the layout that are numbers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser)
    parser.add_argument("--out", metavar="DIR", help="folder of the run (default: runs/NAME, named after the settings)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, and nothing else")
    parser.add_argument(
        "--checkpoint-every", default="10", metavar="N", help="rounds between two checkpoints (default: %(default)s)"
    )
    group = parser.add_argument_group("layout: where it runs; changes nothing but speed")
    group.add_argument("--actors", metavar="N", help="Ray actors that share the work (default: every core or GPU)")
    group.add_argument(
        "--nodes-per-actor", metavar="N", help="give every node a fixed actor, N nodes each; 1: one node, one actor"
    )
    group.add_argument(
        "--gpus-per-actor", metavar="NUMBER", help="fraction of a GPU, or several GPUs (default: up to 4 share one)"
    )
    group.add_argument(
        "--cpus-per-actor", metavar="NUMBER", help="CPUs that Ray reserves for an actor (default: 1, or its share)"
    )
    add_cpu_fallback(group, "an actor")
    add_patience(group)
    group.add_argument("--in-process", action="store_true", help="no Ray: everything in this process")
    add_address(group)
    add_submit(group, "experiment", "record")
    add_time_limit(group)
    group.add_argument(
        "--profile", action="store_true", help="print where the time went; save Ray's timeline in the folder"
    )


def command(options: argparse.Namespace) -> int:
    experiment = Experiment(**settings(options))
    time_limit(options)
    if options.submit:
        from fedpns_ray.terminal.submit import submit_run

        return submit_run(experiment, options)
    out = Path(options.out or Path("runs") / folder_name(experiment))
    result = _run(experiment, out, options)
    if result is None:
        messages.print(f"stopped; the same command resumes from {out}")
        return 130
    if result.diverged:
        messages.print(f"fedpns: {experiment.label}, seed {experiment.seed}: {result.diverged}", soft_wrap=True)
    if options.json:
        print(json.dumps(result.summary | {"out": str(out)}))
    else:
        _print_summary(result, out)
        if options.profile:
            _print_profile(result)
    return 3 if result.diverged else 0


def _run(experiment: Experiment, out: Path, options: argparse.Namespace) -> Result | None:
    """The result; None if the run was stopped by a signal."""
    from fedpns_ray.api import Interrupted, run
    from fedpns_ray.progress.run_bar import RunBar

    layout, every = _layout(options), whole_number(options.checkpoint_every)
    if not every:
        raise InputError("checkpoint_every", options.checkpoint_every, "it must be a whole number above 0")
    with stop_on_signal(time_limit(options)) as stop:
        try:
            return run(
                experiment,
                out,
                layout=layout,
                address=options.address,
                progress=RunBar(messages, message_level(quiet=options.json)),
                stop=stop,
                checkpoint_every=every,
                timeline=out / "timeline.json" if options.profile and layout else None,
            )
        except DivergedError as error:
            diverged: Result = error.result
            return diverged
        except (Interrupted, KeyboardInterrupt):
            return None


def _layout(options: argparse.Namespace) -> Layout | None:
    """The layout that the flags ask for; None for --in-process."""
    asked: dict[str, Any] = {}
    for name, kind in NUMBERS.items():
        text = getattr(options, name)
        if text is None:
            continue
        try:
            asked[name] = kind(text)
        except ValueError:
            raise InputError(name, text, f"it must be a {'whole ' * (kind is int)}number") from None
    if options.patience is not None:
        asked["patience"] = patience(options)
    if not options.in_process:
        return Layout(**asked, cpu_fallback=options.cpu_fallback)
    for name in (*asked, "address", "cpu_fallback"):
        if given := getattr(options, name):
            raise InputError(name, Shown(given), problem="is not allowed together with --in-process")
    return None


def _print_summary(result: Result, out: Path) -> None:
    s = result.summary
    reached = [f"{float(k):.0%} in {r} rounds" for k, r in s.rounds_to.items() if r]
    loss = _number(s.last_loss, ".4f")
    if s.last_accuracy is None:  # a regression
        console.print(f"{result.experiment.label}: loss {loss}")
    else:
        console.print(f"{result.experiment.label}: final accuracy {_number(s.final_accuracy, '.2%')}, loss {loss}")
        console.print(f"reached {', '.join(reached[-3:]) or 'no target accuracy'}")
    costs = [f"{cost.scale * s[cost.key]:.4g} {cost.title}" for cost in COSTS if cost.key in s]
    if costs:  # older runs did not count them
        console.print(", ".join(costs))
    if lost := s.non_finite_updates:
        console.print(f"{lost} update{'s were' if lost > 1 else ' was'} not finite and left out")
    console.print(f"weights {s.weights_sha256[:16]}…, written to {out}", soft_wrap=True)


def _number(value: float | None, form: str) -> str:
    """`-` for a missing value or NaN."""
    return "-" if value is None or value != value else format(value, form)


def _print_profile(result: Result) -> None:
    """Where the time of a round went, as the median over rounds."""
    import pandas as pd

    phases = pd.DataFrame([record.seconds_by_phase for record in result.records]).median()
    grid = Table(title="time per round, median over rounds", title_justify="left")
    for column in ("phase", "ms", "share"):
        grid.add_column(column, justify="left" if column == "phase" else "right")
    for phase, seconds in phases.items():
        grid.add_row(str(phase), f"{1e3 * seconds:.2f}", f"{seconds / phases.sum():.1%}")
    console.print(grid)
