"""Whole studies, from the start of the command to its end: against another commit, on one core and two, by trials."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import ray

from benchmarks.harness import Costs, Entry, Figure, Setting, Unavailable, in_turn
from benchmarks.same_bits.checkout import ROOT, full_commit, tree_of
from benchmarks.same_bits.processes import Progress, awaited, environment, tail

ENDED_WITHIN = 3600.0
"""Seconds for one study."""
MLR = """
base: {{strategy: fedpns, dataset: mnist, model: mlr, sigma: 0.3, rho: 1, rounds: {rounds}}}
axes: {{alpha: [1, 2, 3, 4, 5], beta: [0.5, 0.7]}}
seeds: 1-{seeds}
"""
CNN = """
base: {{dataset: mnist, model: cnn-m, sigma: 0.3, rho: 1, rounds: {rounds}}}
axes: {{strategy: [fedpns, fedavg]}}
seeds: 1-4
"""
SEEDS_ONLY = """
base: {{strategy: fedpns, dataset: mnist, model: mlr, sigma: 0.3, rho: 1, rounds: {rounds}}}
seeds: 1-{trials}
"""
TRIALS = (4, 8, 24)


def seconds(study: str, tree: Path = ROOT, cores: int | None = None) -> float:
    """Of `fedpns study` with the code of a tree, the environment of this one, and so many cores (default: all)."""
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        file, log = Path(place) / "s.yaml", Path(place) / "log"
        file.write_text(study)
        words = ["study", str(file), "--out", str(Path(place) / "o")]
        start = f"from benchmarks.study import on_cores; on_cores({cores})" if cores else command_of(tree)
        command = [sys.executable, "-c", start, *words]
        began = time.perf_counter()
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                cwd=place,
                env=environment() | {"PYTHONPATH": str(tree)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            code = awaited(process, ENDED_WITHIN, "a study", Progress(sys.stderr))
        if code:
            raise Unavailable(f"the study ended with {code} ({tail(log)})")
        return time.perf_counter() - began


def command_of(tree: Path) -> str:
    """What a tree's `fedpns` runs: code, as its folder does not have to be installed."""
    found = re.search(r'^fedpns = "(.+):(.+)"$', (tree / "pyproject.toml").read_text(), re.MULTILINE)
    if not found:
        raise Unavailable(f"{tree.name}: its pyproject.toml names no command fedpns")
    return f"import sys; from {found[1]} import {found[2]}; sys.exit({found[2]}())"


def on_cores(cores: int) -> None:
    """`fedpns`, with the words of this command, on a Ray with so many cores."""
    from fedpns_ray.terminal.command_line import entry

    ray.init(address="local", num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    entry()


def against_a_commit(setting: Setting) -> Iterator[Costs]:
    base = tree_of(full_commit(setting.base))
    study = MLR.format(rounds=100, seeds=10 if setting.full else 2)
    sides = {"base": lambda: seconds(study, base), "here": lambda: seconds(study)}
    return in_turn(sides, setting.repeats)


def one_core_and_two(setting: Setting) -> Iterator[Costs]:
    study = CNN.format(rounds=100 if setting.full else 12)
    return in_turn({"one": lambda: seconds(study, cores=1), "two": lambda: seconds(study, cores=2)}, setting.repeats)


def by_trials(setting: Setting) -> Iterator[Costs]:
    """Seconds per trial."""

    def per_trial(trials: int) -> float:
        return seconds(SEEDS_ONLY.format(rounds=30, trials=trials)) / trials

    return in_turn({str(trials): partial(per_trial, trials) for trials in TRIALS}, setting.repeats)


ENTRIES = (
    Entry(
        "study",
        "20 MLR trials (10 settings, 2 seeds; with --full 10 seeds) of 100 rounds, the whole command, at the base "
        "commit against here",
        (Figure("base commit", "base", "here", at_least=2),),
        against_a_commit,
        repeats=2,
    ),
    Entry(
        "packing",
        "8 CNN-M trials of 12 rounds (with --full 100), the whole command, on one core against two",
        (Figure("one core", "one", "two", at_least=1.9),),
        one_core_and_two,
        repeats=2,
    ),
    Entry(
        "trials",
        f"MLR trials of 30 rounds, the whole command: time per trial against that with {TRIALS[0]} trials",
        tuple(Figure(f"trials {n}", str(n), str(TRIALS[0]), at_most=1, at=n) for n in TRIALS[1:]),
        by_trials,
        repeats=2,
    ),
)
