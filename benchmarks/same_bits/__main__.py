"""The command `make same-bits`."""

from __future__ import annotations

import argparse
import fcntl
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import same_bits as package
from benchmarks.same_bits.cases import LAYOUTS, MODELS, list_cases
from benchmarks.same_bits.checkout import KEPT, ROOT, check_out, full_commit, git
from benchmarks.same_bits.comparison import Verdict, compare_files, shown
from benchmarks.same_bits.processes import LOOK_EVERY, Progress, tail
from benchmarks.same_bits.sides import LAST, Side
from fedpns_ray.errors import InputError


def run_both(sides: Sequence[Side], cases: Sequence[Mapping[str, Any]], within: float, progress: Progress) -> Verdict:
    """Run the cases on both sides at once and compare each as soon as both have finished it."""
    base, here = sides
    verdict, compared = Verdict(), 0
    while True:
        gone = [side for side in sides if side.ended]  # checked before the look, which then sees all that they wrote
        fresh = dict.fromkeys(name for side in sides for name in side.look())
        if fresh and not compared and base.versions != here.versions:
            progress.say(f"versions differ: base {shown(base.versions)}, here {shown(here.versions)}")
        for name in fresh:
            if name in base.done and name in here.done:
                compared += 1
                lines = verdict.add(name, base.done[name], here.done[name])
                took = " and ".join(f"{side.done[name]['took']:.1f}" for side in sides)
                progress.say(*lines, f"{compared}/{len(cases)} {'DIFFERS' if lines else 'equal'}: {name} ({took} s)")
        if failures := [reason for side in sides if (reason := _failure(side, side in gone, cases, within))]:
            progress.say(failures[0])
            return verdict
        if len(gone) == len(sides):
            return verdict
        counts = ", ".join(f"{side.name} {len(side.done)}" for side in sides)
        progress.tick(f"{compared}/{len(cases)} compared, {verdict.differing} differ; {counts}")
        time.sleep(LOOK_EVERY)


def _failure(side: Side, gone: bool, cases: Sequence[Mapping[str, Any]], within: float) -> str:
    """Why a side will not finish; empty if it may."""
    missing = len(side.done) < len(cases)
    if gone and missing:
        return f"same-bits: {side.name} stopped early ({tail(side.log)}; see {side.log})"
    if not gone and time.monotonic() - side.finished_at > within:
        late = cases[len(side.done)]["name"] if missing else "shutting down Ray"
        return f"same-bits: {side.name} has not finished {late} after {within:.0f} s"
    return ""


@contextmanager
def alone() -> Iterator[None]:
    """Only one same-bits per tree at a time: two would share their files."""
    KEPT.mkdir(exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            hint = "wait for it to end"
            raise InputError("same-bits", hint=hint, problem="another one is running in this tree") from None
        yield


def same_bits(options: argparse.Namespace) -> int:
    commit = full_commit(options.base)
    progress = Progress()
    changed = " with changes" if git("status", "--porcelain") else ""
    progress.say(f"same-bits: base {commit[:7]}, here {git('rev-parse', 'HEAD')[:7]}{changed}")
    with alone(), tempfile.TemporaryDirectory(prefix="same-bits-") as place:
        LAST.mkdir(exist_ok=True)
        sides = [
            Side("base", check_out(commit, progress), Path(place, "base")),
            Side("here", ROOT, Path(place, "here")),
        ]
        for side in sides:
            side.prepare()
        cases = list_cases(sides[0].strategies(progress), options.only, options.models, options.layouts)
        listed = LAST / "cases.json"
        listed.write_text(json.dumps(cases, indent=1))
        set_up = progress.seconds
        try:
            for side in sides:
                side.start(listed)
            verdict = run_both(sides, cases, options.deadline, progress)
        finally:
            for side in sides:
                side.end()
        lines, code = verdict.closing(commit[:7], len(cases), progress.seconds - set_up)
        progress.say(*lines)
        return code


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="same-bits", description=(package.__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default="", metavar="COMMIT", help="the commit to compare this tree with")
    parser.add_argument("--only", default="", metavar="NAMES", help="strategies, such as fedpns,fedavg (default: all)")
    parser.add_argument("--models", default="", metavar="NAMES", help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--layouts", default="", metavar="NAMES", help=f"of {', '.join(LAYOUTS)} (default: all)")
    parser.add_argument("--deadline", type=float, default=900.0, metavar="SECONDS", help="for one case on one side")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BASE", "HERE"), help="only compare two result files")
    options = parser.parse_args(arguments)
    try:
        if options.compare:
            return compare_files(*options.compare)
        signal.signal(signal.SIGTERM, _stop)
        return same_bits(options)
    except InputError as error:
        print(f"same-bits: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("same-bits: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
