"""Mutation checks: whether the tests of a strategy notice when its rule is changed.

    python -m tests.conformance.mutation              every mutant of every file; the score goes into the documentation
    python -m tests.conformance.mutation pns oort     of these files

A mutant is the strategy's file with one small change: a flipped sign or comparison, a missing root, a dropped term, an
index off by one, another constant, another quantity, the largest for the smallest. It is loaded in the
place of the real module, the tests of the file are imported afresh and called; the mutant is killed if one of them
fails. A mutant that survives is listed with its line. `EQUIVALENT` names those that no test can kill, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import io
import itertools
import json
import random
import signal
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.equivalent import EQUIVALENT
from tests.conformance.mutants import Mutant, mutants

ROOT = Path(__file__).parent.parent.parent
STRATEGIES = ROOT / "fedpns_ray" / "strategies"
SCORES = ROOT / "docs" / "strategies" / "mutation.json"
NO_RULE = ("__init__", "preset")
"""Files that hold no rule."""
SECONDS = 20
"""Of a core, for the tests of one mutant: a loop that never ends is noticed, whatever else the machine is doing."""


def files() -> list[str]:
    """The strategies' files with a rule in them."""
    return sorted(path.stem for path in STRATEGIES.glob("*.py") if path.stem not in NO_RULE)


def source_of(file: str) -> str:
    return (STRATEGIES / f"{file}.py").read_text()


def fingerprint(file: str) -> str:
    """Of the rule and its tests, but not of comments and layout."""
    texts = [source_of(file), (Path(__file__).parent / f"test_{file}.py").read_text()]
    return hashlib.sha256("".join(ast.dump(ast.parse(text)) for text in texts).encode()).hexdigest()[:16]


def judged(file: str) -> list[Mutant]:
    """The mutants of a file, without those that are known to change nothing."""
    return [mutant for mutant in mutants(source_of(file)) if mutant.words not in EQUIVALENT.get(file, {})]


def chosen(file: str, count: int = 3) -> list[Mutant]:
    """A few of them, always the same: what continuous integration runs."""
    found = judged(file)
    return random.Random(file).sample(found, min(count, len(found)))  # noqa: S311


# --- a mutant in the place of the module -----------------------------------------------------------------------------


@contextlib.contextmanager
def in_place(file: str, tree: ast.Module) -> Iterator[None]:
    name = f"fedpns_ray.strategies.{file}"
    package, real = importlib.import_module("fedpns_ray.strategies"), importlib.import_module(name)
    mutated = types.ModuleType(name)
    mutated.__file__ = str(STRATEGIES / f"{file}.py")
    sys.modules[name] = mutated
    try:
        exec(compile(tree, mutated.__file__, "exec"), mutated.__dict__)  # noqa: S102
        setattr(package, file, mutated)
        yield
    finally:
        sys.modules[name] = real
        setattr(package, file, real)


def calls(test: types.FunctionType) -> Iterator[dict[str, object]]:
    """The arguments of every call that pytest would make of a test, from its parametrize marks."""
    axes = []
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names, values = mark.args[0], list(mark.args[1])
            split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
            rows = [getattr(value, "values", value) if hasattr(value, "marks") else value for value in values]
            wide = len(split) > 1
            axes.append([dict(zip(split, row if wide else [row], strict=True)) for row in rows])
    for combination in itertools.product(*axes):
        yield {key: value for one in combination for key, value in one.items()}


def failure(file: str) -> str:
    """Runs the tests of a file against what stands in the strategy's place; the first that fails, or nothing."""
    path = Path(__file__).parent / f"test_{file}.py"
    tests = types.ModuleType(f"tests.conformance.test_{file}")
    tests.__file__ = str(path)
    try:
        exec(compile(path.read_text(), str(path), "exec"), tests.__dict__)  # noqa: S102
        for name, test in list(vars(tests).items()):
            if name.startswith("test_") and callable(test):
                for arguments in calls(test):
                    test(**arguments)
    except (Exception, pytest.fail.Exception) as error:
        return f"{type(error).__name__}: {error}"
    return ""


class Late(Exception):
    """The tests took too long."""


def _late(number: int, frame: object) -> None:
    raise Late(f"more than {SECONDS} s")


def killed(file: str, mutant: Mutant) -> str:
    """How the mutant was noticed; empty if it survived."""
    before = signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), in_place(file, mutant.make()):
            warnings.simplefilter("ignore")
            return failure(file)
    except Exception as error:  # it cannot even be imported, or it never ends
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Score(NamedTuple):
    killed: int
    of: int
    survivors: list[str]


def score(file: str) -> Score:
    if found := failure(file):
        raise SystemExit(f"{file}: its tests fail without any mutation: {found}")
    found_mutants = judged(file)
    survivors = [str(mutant) for mutant in found_mutants if not killed(file, mutant)]
    return Score(len(found_mutants) - len(survivors), len(found_mutants), survivors)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.mutation", description="Mutation checks.")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(files())} (default: all)")
    parser.add_argument("--dry", action="store_true", help="leave the documentation as it is")
    options = parser.parse_args()
    if unknown := [file for file in options.files if file not in files()]:
        parser.error(f"{unknown[0]!r} is unknown; choose from {', '.join(files())}")
    scores = json.loads(SCORES.read_text()) if SCORES.exists() else {}
    for file in options.files or files():
        one = score(file)
        print(f"{file}: {one.killed} of {one.of} mutants killed", *one.survivors, sep="\n  ", flush=True)
        scores[file] = {"fingerprint": fingerprint(file), **one._asdict()}
    if not options.dry:
        SCORES.write_text(json.dumps(dict(sorted(scores.items())), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
