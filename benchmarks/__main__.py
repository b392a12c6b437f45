"""The command `make bench`: speed as ratios, measured in one run.

python -m benchmarks                     every usual entry, about 15 minutes on 2 cores
python -m benchmarks flower limit        some of them
python -m benchmarks --write flower      also keep what was measured, and write the tables and the picture
python -m benchmarks --check limit       exit code 1 and one line for each figure that got worse
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from typing import Any, NoReturn

from benchmarks import actor, endurance, optimal_aggregation, population, ratios, report, rounds, study, tune_loop
from benchmarks.harness import Entry, Setting, Unavailable, measured
from benchmarks.plot import draw
from benchmarks.same_bits.checkout import full_commit
from fedpns_ray.errors import InputError, Shown

MODULES = (rounds, study, population, optimal_aggregation, tune_loop, report, actor, endurance)
ENTRIES: dict[str, Entry] = {entry.name: entry for module in MODULES for entry in module.ENTRIES}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def chosen(names: Sequence[str]) -> list[Entry]:
    for name in names:
        if name not in ENTRIES:
            raise InputError("benchmark", Shown(name), f"it must be one of {', '.join(ENTRIES)}", problem="is unknown")
    return [ENTRIES[name] for name in names] or [entry for entry in ENTRIES.values() if entry.usual]


def setting_of(entry: Entry, options: argparse.Namespace) -> Setting:
    clock = "cpu" if options.cpu and entry.by_cpu else "seconds"
    return Setting(options.repeats or entry.repeats, options.full, clock, options.base, say)


def run(entry: Entry, setting: Setting) -> dict[str, Any]:
    """What was measured and on what, or why it was not."""
    say(f"{entry.name}: {entry.what}")
    began, load = time.monotonic(), os.getloadavg()[0]
    try:
        figures = measured(entry, setting)
    except (Unavailable, InputError, OSError) as reason:
        say(f"  skipped: {reason}")
        return {"what": entry.what, "skipped": str(reason)}
    found = {
        "what": entry.what,
        "setting": {"clock": setting.clock, "full": setting.full, "cores": os.cpu_count()},
        "measured": {
            "on": str(date.today()),
            "seconds": round(time.monotonic() - began),
            "load_before": round(load, 1),
            **{"python": platform.python_version(), "torch": version("torch"), "ray": version("ray")},
        },
        "figures": figures,
    }
    for line in ratios.lines(found):
        say(line)
    return found


def write_page() -> None:
    """The tables and the picture, from the ratios that are kept."""
    found = ratios.kept()
    ratios.PAGE.write_text(ratios.page(ratios.PAGE.read_text(), found))
    draw(found)


def bench(options: argparse.Namespace) -> int:
    entries = chosen(options.names)
    if options.repeats < 0:
        raise InputError("--repeats", options.repeats, "it must be at least 1")
    if options.base != Setting.base:
        full_commit(options.base)
    if options.list:
        for entry in entries if options.names else ENTRIES.values():
            print(f"{entry.name:22s}{'' if entry.usual else '(only by name) '}{entry.what}")
        return 0
    found: dict[str, Any] = {}
    for entry in entries:
        found[entry.name] = run(entry, setting_of(entry, options))
        if options.write:
            ratios.keep({entry.name: found[entry.name]}, list(ENTRIES))
    if options.write:
        write_page()
    if options.json:
        print(json.dumps(found, indent=1))
    if not options.check:
        return 0
    problems = list(ratios.worsened(ratios.kept(), found))
    for line in problems:
        say(f"bench-check: {line}")
    return int(any(" worse, " in line for line in problems))


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which entries (default: the usual ones)")
    parser.add_argument("--list", action="store_true", help="name all entries, and measure nothing")
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")
    parser.add_argument(
        "--write", action="store_true", help="keep it in ratios.json, docs/performance.md and its picture"
    )
    parser.add_argument("--check", action="store_true", help="compare with ratios.json: exit code 1 if one is worse")
    parser.add_argument("--full", action="store_true", help="the sizes that goals are stated for: studies take an hour")
    parser.add_argument(
        "--cpu", action="store_true", help="seconds of a core where they mean something: on a busy machine"
    )
    parser.add_argument("--repeats", type=int, default=0, metavar="N", help="of every entry (default: its own number)")
    parser.add_argument("--base", default=Setting.base, metavar="COMMIT", help="for study (default: %(default)s)")
    try:
        signal.signal(signal.SIGTERM, _stop)
        return bench(parser.parse_args(arguments))
    except InputError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
