"""`python -m fedpns_ray.doctor.idle --hours 4`: a cluster in a cloud that ends itself after hours without work.

To be run on the head, after `ray start`; the cluster files have the line. It leaves a process behind that asks Ray for
its jobs. When none has run for so long, the workers and then the head are terminated, as by `ray down`. A Ray that does
not answer is left alone: work may be going on. A user's own machines are never ended, as they cost nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedpns_ray.errors import InputError, one_line
from fedpns_ray.runtime.ray_private import autoscaling_config, end_cluster
from fedpns_ray.study.jobs import Jobs

DASHBOARD = "http://127.0.0.1:8265"
LOOK_EVERY = 60.0
"""Seconds between two looks; shorter if the limit is shorter than ten of them."""
FOLDER = Path("~/.fedpns")
"""Where the watching process leaves its id and its log."""


def watch(jobs: Callable[[], Jobs], seconds: float, replaced: Callable[[], bool]) -> bool:
    """Return when no job has run for so many seconds, True; or when another process watches, False."""
    idle_since, reminded = time.monotonic(), False
    while not replaced():
        try:
            if jobs().at_work():
                idle_since, reminded = time.monotonic(), False
        except (InputError, RuntimeError, OSError) as error:
            _say(f"Ray does not answer, so nothing is ended: {one_line(error)}")
            idle_since = time.monotonic()
        idle = time.monotonic() - idle_since
        if idle >= seconds:
            return True
        if idle >= seconds / 2 and not reminded:
            reminded = True
            _say(f"no job has run for {idle / 3600:.2g} h: this cluster ends itself in {(seconds - idle) / 3600:.2g} h")
        time.sleep(min(LOOK_EVERY, seconds / 10))
    return False


def _say(text: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)


def _leave_behind(arguments: list[str]) -> Path:
    """Start the process that watches; it survives this shell. Returns the path of its log."""
    log = FOLDER.expanduser() / "idle.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as output:
        subprocess.Popen(
            [sys.executable, "-m", "fedpns_ray.doctor.idle", *arguments, "--watch"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return log


def _watch_here(address: str, seconds: float) -> None:
    """Watch until another process does, which `ray up` starts when it is given again."""
    mark, mine = FOLDER.expanduser() / "idle.pid", str(os.getpid())
    mark.write_text(mine)
    config = autoscaling_config() or {}
    if watch(lambda: Jobs(address), seconds, lambda: mark.read_text() != mine):
        _say(f"no job has run for {seconds / 3600:.3g} h: the machines of {config['cluster_name']} are terminated")
        end_cluster(config)


def _hours(text: str) -> float:
    if not 0 < (hours := float(text)) <= 24 * 365:
        raise ValueError(text)
    return hours


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="end this cluster after hours without work")
    parser.add_argument("--hours", type=_hours, required=True, metavar="X", help="how long no job has run, at most")
    parser.add_argument("--address", default=DASHBOARD, metavar="URL", help=f"its dashboard (default: {DASHBOARD})")
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    kind = (autoscaling_config() or {}).get("provider", {}).get("type")
    if kind in (None, "local", "kuberay"):
        why = {"local": "nothing is charged for your own machines", "kuberay": "kubectl delete ends it"}
        return _refuse(f"this cluster is not ended by itself: {why.get(kind or '', 'this is not the head of one')}")
    if options.watch:
        _watch_here(options.address, options.hours * 3600)
    else:
        log = _leave_behind(arguments)
        print(f"fedpns: this cluster ends itself after {options.hours:g} h without a job (log: {log})")
    return 0


def _refuse(problem: str) -> int:
    print(f"fedpns: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
