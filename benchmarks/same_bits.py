"""Whether this working tree gives the same bits as an earlier commit: every strategy, two models, three layouts.

    make same-bits BASE=7f877ab [ONLY=fedpns,fedavg] [MODELS=mlr] [LAYOUTS=in-process]
    python -m benchmarks.same_bits --compare BASE.jsonl HERE.jsonl

The commit is checked out into `.same-bits/<commit>/`, with an environment of its own that is kept for the next time. Both
sides run the same small experiments at the same time, each in one process with one Ray, on the CPU. Compared are the
SHA-256 of the weights and of the population, and every record of every round but its times. A key that only this tree
records is listed; a key that it no longer records is a difference. CNN-M needs MNIST under FEDPNS_DATA.

Exit code 0: all equal; 1: a difference, or a side that did not finish; 2: bad input. (`make` turns 1 into 2.)
What both sides gave stays in `.same-bits/last/`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".same-bits"
LAST = KEPT / "last"
SIDE = Path(__file__).with_name("same_bits_side.py")

TIMES = ("seconds", "seconds_by_phase")
"""What differs from run to run, and is not compared."""
SHOWN = 20
"""Differences of one case that are printed; the others are counted."""
LONGEST = 300
"""Characters of a value that are printed."""

MODELS: dict[str, dict[str, Any]] = {
    "mlr": {"dataset": "synthetic", "model": "mlr", "samples_per_node": 30, "epochs": 2},
    "cnn-m": {"dataset": "mnist", "model": "cnn-m", "samples_per_node": 40, "epochs": 1, "evaluate_every": 2},
}
LAYOUTS: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "in-process": ({}, {"nodes": 6, "fraction": 0.5}),
    "two-actors": ({"actors": 2}, {"nodes": 6, "fraction": 0.5}),
    "node-actors": ({"nodes_per_actor": 1}, {"nodes": 3, "fraction": 0.67}),
}
"""What `Layout` takes (nothing: in process), and a population that suits it: an actor takes three seconds of CPU time to start."""
COMMON: dict[str, Any] = {"rounds": 4, "sigma": 0.5, "devices": "log-normal"}
IF_TAKEN: dict[str, Any] = {"relevance": 0.55, "relevance_decay": "none", "stragglers": 0.5, "pace_window": 2}
"""Parameters, for strategies that have them, with values that matter in a run as small as these."""
FEW = {"candidates": 4, "choices": 4}
"""The same, of which there are no more than nodes."""

LOOK_EVERY = 0.2
"""Seconds between two looks at what the sides have written."""
SAY_EVERY = {True: 0.5, False: 5.0}
"""Seconds between two signs of life, on a terminal and elsewhere."""
GIT_WITHIN, SET_UP_WITHIN, PLAN_WITHIN, END_WITHIN = 120.0, 3600.0, 300.0, 30.0
"""Seconds for a call of git, for an environment, for the list of strategies, for a side to go when it is told to."""


class BadInputError(Exception):
    """One line for the user, and exit code 2."""


# --- comparing -------------------------------------------------------------------------------------------------------


@dataclass
class Comparison:
    """What two results of one case have and have not in common."""

    differences: list[str] = field(default_factory=list)
    """One line each: where, which key, both values."""
    new_keys: set[str] = field(default_factory=set)
    """Recorded here only, which is allowed."""
    rounds: int = 0


def compare(base: Mapping[str, Any], here: Mapping[str, Any]) -> Comparison:
    """One case, as both sides wrote it."""
    found = Comparison()
    if "error" in base or "error" in here:
        found.differences.append(
            f"did not run: base {base.get('error', 'ended well')}, here {here.get('error', 'ended well')}"
        )
        return found
    for key in ("weights_sha256", "population_sha256"):
        _compare_value(key, base[key], here[key], found)
    records = {record["round"]: record for record in base["records"]}
    records_here = {record["round"]: record for record in here["records"]}
    for number in sorted(records.keys() | records_here.keys()):
        if number not in records_here:
            found.differences.append(f"round {number}: missing here, recorded at base")
        elif number not in records:
            found.differences.append(f"round {number}: missing at base, recorded here")
        else:
            found.rounds += 1
            _compare_keys(f"round {number}, ", "", records[number], records_here[number], found)
    if not records:
        found.differences.append("no round was recorded")
    return found


def _compare_keys(place: str, prefix: str, base: Mapping[str, Any], here: Mapping[str, Any], found: Comparison) -> None:
    for key in dict.fromkeys((*base, *here)):
        name = f"{prefix}{key}"
        if name in TIMES:
            if key in base and key not in here:
                found.differences.append(f"{place}{name}: missing here, recorded at base")
        elif key not in base:
            found.new_keys.add(name)
        elif key not in here:
            found.differences.append(f"{place}{name}: missing here, base {_shown(base[key])}")
        elif isinstance(base[key], dict) and isinstance(here[key], dict):
            _compare_keys(place, f"{name}.", base[key], here[key], found)
        else:
            _compare_value(f"{place}{name}", base[key], here[key], found)


def _compare_value(place: str, base: Any, here: Any, found: Comparison) -> None:
    """By their JSON, which tells 0.0 from -0.0 and 1 from 1.0, and holds every bit; NaN equals NaN."""
    if json.dumps(base, sort_keys=True) != json.dumps(here, sort_keys=True):
        found.differences.append(f"{place}: base {_shown(base)}, here {_shown(here)}")


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@dataclass
class Verdict:
    """All comparisons so far, told as they come."""

    equal: int = 0
    differing: int = 0
    rounds: int = 0
    new_keys: set[str] = field(default_factory=set)

    def add(self, name: str, base: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
        """Lines to print."""
        found = compare(base, here)
        self.rounds += found.rounds
        self.new_keys |= found.new_keys
        if not found.differences:
            self.equal += 1
            return []
        self.differing += 1
        lines = [f"DIFFERS: {name}, {difference}" for difference in found.differences[:SHOWN]]
        if len(found.differences) > SHOWN:
            lines.append(f"DIFFERS: {name}, and {len(found.differences) - SHOWN} more")
        return lines

    def add_missing(self, name: str, side: str) -> list[str]:
        self.differing += 1
        return [f"DIFFERS: {name}, missing {side}"]

    def closing(self, base: str, planned: int, seconds: float | None = None) -> tuple[list[str], int]:
        """The last lines, and the exit code."""
        lines = [f"new here: {', '.join(sorted(self.new_keys))}"] if self.new_keys else []
        counts = f"{self.equal} of {planned} cases equal, {self.differing} differ, {self.rounds} rounds compared"
        took = f", {seconds:.0f} s" if seconds is not None else ""
        same = self.equal == planned > 0 and not self.differing
        lines.append(f"same-bits: {'the same bits as' if same else 'NOT the same bits as'} {base}: {counts}{took}")
        return lines, 0 if same else 1


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """The cases in a file of a side's, by name."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: cannot be read ({error})") from None
    return {line["case"]: line for line in lines if "case" in line}


def compare_files(base: Path, here: Path) -> int:
    """The comparison alone, of two files that are there."""
    results, results_here, verdict = read_results(base), read_results(here), Verdict()
    names = list(dict.fromkeys((*results, *results_here)))
    for name in names:
        if name not in results or name not in results_here:
            lines = verdict.add_missing(name, "here" if name in results else "at base")
        else:
            lines = verdict.add(name, results[name], results_here[name])
        print(*lines, sep="\n", end="\n" if lines else "")
    lines, code = verdict.closing(str(base), len(names))
    print(*lines, sep="\n")
    return code


# --- signs of life ---------------------------------------------------------------------------------------------------


class Progress:
    """Lines that stay and, between them, a counter: rewritten in place on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._began = self._last = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, *lines: str) -> None:
        for line in lines:
            print(f"\r\x1b[K{line}" if self._terminal else line, flush=True)
        if lines:
            self._last = time.monotonic()

    def tick(self, counter: str) -> None:
        if time.monotonic() - self._last < SAY_EVERY[self._terminal]:
            return
        line = f"{counter} ({self.seconds:.0f} s)"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{line[:width]}" if self._terminal else line, end="" if self._terminal else "\n", flush=True)
        self._last = time.monotonic()


# --- the two sides ---------------------------------------------------------------------------------------------------


def git(*arguments: str, at: Path = ROOT) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=at, capture_output=True, text=True, timeout=GIT_WITHIN)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInputError(f"git {arguments[0]}: {error}") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BadInputError(f"git {arguments[0]}: {reason}")
    return done.stdout.strip()


def full_commit(base: str) -> str:
    if not base:
        raise BadInputError("BASE: is missing; name the commit to compare with, as in make same-bits BASE=7f877ab")
    try:
        return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    except BadInputError:
        raise BadInputError(f"BASE: {base} is not a commit of this repository") from None


def environment() -> dict[str, str]:
    """This process's, without what leads Python, make or Ray elsewhere; no GPU; data where this process would look."""
    dropped = ("PYTHON", "MAKE", "MFLAGS", "RAY_", "VIRTUAL_ENV", "COVERAGE", "GIT_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    if data := kept.get("FEDPNS_DATA"):
        kept["FEDPNS_DATA"] = str(Path(data).expanduser().absolute())
    return kept | {
        "PYTHONNOUSERSITE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # else the workers wait for everything else on a busy machine
    }


def ended(process: subprocess.Popen[Any]) -> None:
    """Make a process end: asked first, so that it takes its Ray with it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_WITHIN)


def tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:LONGEST] if lines else "no message"


def check_out(commit: str, progress: Progress) -> Path:
    """The commit's tree with its environment, made by the commit's own Makefile; or the one of an earlier time."""
    tree = KEPT / commit
    if not tree.exists():
        partial = KEPT / f"{commit}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        common = git("rev-parse", "--path-format=absolute", "--git-common-dir")
        git("clone", "--quiet", "--shared", "--no-checkout", common, str(partial))
        git("checkout", "--quiet", "--detach", commit, at=partial)
        partial.rename(tree)
    if git("rev-parse", "HEAD", at=tree) != commit or git("status", "--porcelain", "--untracked-files=no", at=tree):
        git("checkout", "--quiet", "--force", "--detach", commit, at=tree)
    log = KEPT / f"{commit}.log"
    make = ["make", ".venv/.ready", f"PYTHON={Path(sys.base_prefix) / 'bin' / 'python3'}"]
    with log.open("w") as output:
        process = subprocess.Popen(make, cwd=tree, env=environment(), stdout=output, stderr=subprocess.STDOUT)
        code = awaited(process, SET_UP_WITHIN, f"the environment of {commit[:7]}", progress)
    if code:
        raise BadInputError(f"BASE: {commit[:7]} cannot be set up (make .venv/.ready: {tail(log)}; see {log})")
    return tree


def awaited(process: subprocess.Popen[Any], within: float, what: str, progress: Progress) -> int:
    """The exit code of a process, with signs of life until then and a deadline."""
    deadline = time.monotonic() + within
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise BadInputError(f"{what}: not there within {within:.0f} s")
            progress.tick(f"{what}: being made")
            time.sleep(LOOK_EVERY)
    finally:
        ended(process)
    return process.returncode


@dataclass
class Side:
    """A tree, and the process that runs its cases."""

    name: str
    tree: Path
    folder: Path
    """Where its process runs: neutral, so that nothing is imported from there."""
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    finished_at: float = 0.0
    """When the last case was, or the process began."""
    process: subprocess.Popen[Any] | None = None
    _lines: IO[str] | None = None
    _torn: str = ""

    @property
    def log(self) -> Path:
        return LAST / f"{self.name}.log"

    def _command(self, *arguments: str) -> list[str]:
        script = self.folder / SIDE.name
        shutil.copy(SIDE, script)
        return [str(self.tree / ".venv" / "bin" / "python"), str(script), *arguments]

    def strategies(self, progress: Progress) -> dict[str, list[str]]:
        """The registry of this side: strategies, and the names of their parameters."""
        answer = self.folder / "plan.json"
        with answer.open("w") as output, self.log.open("w") as log:
            process = subprocess.Popen(
                self._command("plan", str(self.tree)), cwd=self.folder, env=environment(), stdout=output, stderr=log
            )
            code = awaited(process, PLAN_WITHIN, f"the list of strategies at {self.name}", progress)
        if code:
            raise BadInputError(f"BASE: its strategies cannot be listed ({tail(self.log)})")
        return dict(json.loads(answer.read_text()))

    def start(self, cases: Path) -> None:
        results = LAST / f"{self.name}.jsonl"
        results.write_text("")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self._command("cases", str(self.tree), str(cases), str(results)),
                cwd=self.folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._lines = results.open(encoding="utf-8")
        self.finished_at = time.monotonic()

    def look(self) -> list[str]:
        """The cases that were finished since the last look."""
        assert self._lines
        *whole, self._torn = (self._torn + self._lines.read()).split("\n")
        fresh = []
        for line in map(json.loads, whole):
            self.finished_at = time.monotonic()
            if "case" in line:
                self.done[line["case"]] = line
                fresh.append(line["case"])
            else:
                self.versions = line["versions"]
        return fresh

    def end(self) -> None:
        if self.process:
            ended(self.process)
        if self._lines:
            self._lines.close()


# --- the cases -------------------------------------------------------------------------------------------------------


def chosen(given: str, known: Sequence[str], option: str) -> list[str]:
    """A selection such as `fedpns,fedavg`, in the order of what is known; all if nothing is given."""
    names = [name for name in given.replace(",", " ").split() if name]
    for name in names:
        if name not in known:
            raise BadInputError(f"{option}: {name} is not allowed; there are {', '.join(known)}")
    return [name for name in known if name in names or not names]


def list_cases(
    strategies: Mapping[str, Sequence[str]], only: str = "", models: str = "", layouts: str = ""
) -> list[dict[str, Any]]:
    """What both sides run, spelled out; what costs least comes first, so that a difference shows early."""
    return [
        {
            "name": f"{strategy}, {model}, {layout}",
            "layout": LAYOUTS[layout][0],
            "settings": {
                "strategy": strategy,
                **MODELS[model],
                **LAYOUTS[layout][1],
                **COMMON,
                **_taken(strategies[strategy], LAYOUTS[layout][1]["nodes"]),
            },
        }
        for layout in chosen(layouts, list(LAYOUTS), "--layouts")
        for model in chosen(models, list(MODELS), "--models")
        for strategy in chosen(only, list(strategies), "--only")
    ]


def _taken(parameters: Sequence[str], nodes: int) -> dict[str, Any]:
    values = IF_TAKEN | {key: min(most, nodes) for key, most in FEW.items()}
    return {key: value for key, value in values.items() if key in parameters}


def run_both(sides: Sequence[Side], cases: Sequence[Mapping[str, Any]], within: float, progress: Progress) -> Verdict:
    """Run the cases on both sides at once, and compare each as soon as both have it."""
    base, here = sides
    verdict, compared = Verdict(), 0
    while True:
        gone = [side for side in sides if side.process is None or side.process.poll() is not None]  # before the look
        fresh = dict.fromkeys(name for side in sides for name in side.look())
        if fresh and not compared and base.versions != here.versions:
            progress.say(f"versions differ: base {_shown(base.versions)}, here {_shown(here.versions)}")
        for name in fresh:
            if name in base.done and name in here.done:
                compared += 1
                lines = verdict.add(name, base.done[name], here.done[name])
                took = " and ".join(f"{side.done[name]['took']:.1f}" for side in sides)
                progress.say(*lines, f"{compared}/{len(cases)} {'DIFFERS' if lines else 'equal'}: {name} ({took} s)")
        for side in sides:
            if side in gone and len(side.done) < len(cases):
                progress.say(f"same-bits: {side.name} stopped early ({tail(side.log)}; see {side.log})")
                return verdict
            if side not in gone and time.monotonic() - side.finished_at > within:
                late = cases[len(side.done)]["name"] if len(side.done) < len(cases) else "the end of its Ray"
                progress.say(f"same-bits: {side.name} is not done with {late} after {within:.0f} s")
                return verdict
        if len(gone) == len(sides):
            return verdict
        counts = ", ".join(f"{side.name} {len(side.done)}" for side in sides)
        progress.tick(f"{compared}/{len(cases)} compared, {verdict.differing} differ; {counts}")
        time.sleep(LOOK_EVERY)


@contextmanager
def alone() -> Iterator[None]:
    """One same-bits at a time in a tree: two would share their files."""
    KEPT.mkdir(exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInputError("another same-bits runs in this tree; wait for its end") from None
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
            side.folder.mkdir()
            if not (side.tree / ".venv" / "bin" / "python").exists():
                raise BadInputError(f"{side.tree}: has no .venv; make .venv/.ready makes it")
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
    parser = argparse.ArgumentParser(prog="same-bits", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default="", metavar="COMMIT", help="what to compare this tree with")
    parser.add_argument("--only", default="", metavar="NAMES", help="strategies, such as fedpns,fedavg; else all")
    parser.add_argument("--models", default="", metavar="NAMES", help=f"of {', '.join(MODELS)}; else all")
    parser.add_argument("--layouts", default="", metavar="NAMES", help=f"of {', '.join(LAYOUTS)}; else all")
    parser.add_argument("--deadline", type=float, default=900.0, metavar="SECONDS", help="for one case of one side")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BASE", "HERE"), help="only compare two result files")
    options = parser.parse_args(arguments)
    try:
        if options.compare:
            return compare_files(*options.compare)
        signal.signal(signal.SIGTERM, _stop)
        return same_bits(options)
    except BadInputError as error:
        print(f"same-bits: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("same-bits: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
