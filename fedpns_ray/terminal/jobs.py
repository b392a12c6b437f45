"""`fedpns jobs`: what was sent to a cluster with --submit: its list, its log, its end."""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING

from rich.table import Table

from fedpns_ray.errors import InputError, LostError, one_line
from fedpns_ray.terminal.screen import console, messages

if TYPE_CHECKING:
    from fedpns_ray.study.jobs import Job, Jobs

WHAT = "List, read or stop what was sent to a cluster with --submit."
RUNS_CODE = False
EXAMPLES = """examples:
  ray dashboard cluster/gpu.yaml &                               opens http://127.0.0.1:8265
  fedpns jobs list
  fedpns jobs logs                                               of the running job, or of the last one
  fedpns jobs logs fedpns-fig3-1f2e3d4c5b6a-1 --follow
  fedpns jobs stop                                               with checkpoints; the same command resumes
"""
DASHBOARD = "http://127.0.0.1:8265"
IDLE_HOURS = 2.0
"""Hours without a job after which the list reminds that the head is still on."""
DONE = ("list", "logs", "stop")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=DONE, metavar="{list,logs,stop}", help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help="a job, as the list shows it")
    parser.add_argument(
        "--address", metavar="URL", help=f"the cluster's dashboard (default: RAY_API_SERVER_ADDRESS, or {DASHBOARD})"
    )
    parser.add_argument("--follow", action="store_true", help="with logs: until the job ends")


def command(options: argparse.Namespace) -> int:
    from fedpns_ray.study.jobs import Jobs

    if options.follow and options.action != "logs":
        raise InputError("follow", problem="is only allowed with logs")
    if options.name and options.action == "list":
        raise InputError("name", options.name, problem="is not allowed with list")
    jobs = Jobs(options.address or os.environ.get("RAY_API_SERVER_ADDRESS") or DASHBOARD)
    try:
        return {"list": _list, "logs": _logs, "stop": _stop}[options.action](jobs, options)
    except (RuntimeError, OSError) as error:
        if isinstance(error, LostError):
            raise
        raise InputError("address", problem=f"the cluster does not answer ({one_line(error)})") from None


def _list(jobs: Jobs, options: argparse.Namespace) -> int:
    from fedpns_ray.study.jobs import idle_seconds

    found, now = jobs.listed(), time.time()
    if not found:
        console.print("no job was sent to this cluster")
        return 0
    grid = Table(title="jobs", title_justify="left")
    for column in ("name", "status", "started", "took", "command"):
        grid.add_column(column, overflow="fold")
    for job in found:
        grid.add_row(job.name, job.status, _clock(job), _spent((job.ended or now) - job.started), _short(job.command))
    console.print(grid)
    idle = idle_seconds(found, now)
    if idle is not None and idle > 3600 * IDLE_HOURS:
        messages.print(reminder(idle), soft_wrap=True)
    return 0


def reminder(idle: float) -> str:
    """A reminder for users who have forgotten that a cluster is running."""
    return f"no job has run for {_spent(idle)}: the head still runs and costs money; to end it: ray down FILE.yaml"


def _logs(jobs: Jobs, options: argparse.Namespace) -> int:
    from fedpns_ray.study.submission import follow

    name = jobs.named(options.name)
    if not options.follow:
        print(jobs.log(name), end="")
        return 0
    return follow(jobs.client, name, lambda text: print(text, end="", flush=True))


def _stop(jobs: Jobs, options: argparse.Namespace) -> int:
    name = jobs.named(options.name, running=True)
    if jobs.stop(name):
        console.print(f"{name} is stopped; the command that sent it resumes it", soft_wrap=True)
    else:
        console.print(f"{name} had already ended")
    return 0


def _clock(job: Job) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(job.started))


def _spent(seconds: float) -> str:
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _short(command: str) -> str:
    return command.removeprefix("python -m fedpns_ray ").removesuffix(" --address auto")
