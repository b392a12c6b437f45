"""What many nodes cost, and many drawn ones: start-up, a round, memory."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import Costs, Entry, Figure, Setting, in_turn
from benchmarks.sides import Side

ROUNDS = 8
COUNTS = (50, 1_000, 10_000, 100_000)
CASES: dict[str, dict[str, Any]] = {
    "synthetic": {"dataset": "synthetic", "epochs": 20},
    "mnist": {"dataset": "mnist", "model": "cnn-m"},
    "cifar10": {"dataset": "cifar10", "model": "cnn-c", "samples_per_node": 200, "epochs": 1},
}
DRAWN = (10, 100, 1_000)


def peak(process: int) -> float:
    """The most memory that a process had, in MB."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1e3 if found else 0.0


def main(case: str, nodes: str, started: str, actors: str) -> None:
    """In a process of its own: seconds to the first round and of a round, and the most MB it had with its actors."""
    from benchmarks.serving import Questions
    from fedpns_ray import Experiment, Layout, run
    from fedpns_ray.records.record import Record

    questions = Questions()
    first: list[float] = []
    peaks: dict[int, float] = {}

    def look(record: Record) -> None:
        first.append(time.time() - float(started) - record["seconds"])
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if "Actor" in " ".join(process.cmdline()):  # not Ray's own processes, nor workers that wait for work
                    peaks[process.pid] = peak(process.pid)

    e = Experiment(strategy="fedpns", nodes=int(nodes), fraction=10 / int(nodes), rounds=ROUNDS, **CASES[case])
    result = run(e, on_round=look, layout=Layout(actors=int(actors)) if int(actors) else None, progress=False)
    seconds = statistics.median(record["seconds"] for record in result.records[2:-1])
    memory = peak(os.getpid()) + sum(peaks.values())
    questions.serve(lambda question: {"start-up": first[0], "round": seconds, "memory": memory})


def by_nodes(actors: int) -> Callable[[Setting], Iterator[Costs]]:
    def measure(setting: Setting) -> Iterator[Costs]:
        for repeat in range(setting.repeats):
            found: dict[str, float] = {}
            for case in CASES:
                some = COUNTS if case == "synthetic" and not actors else (COUNTS[0], COUNTS[-1])
                for nodes in some if repeat % 2 == 0 else some[::-1]:
                    with Side("benchmarks.population", case, str(nodes), str(time.time()), str(actors)) as side:
                        found |= {f"{case} {nodes} {what}": value for what, value in side.ask().items()}
            yield found

    return measure


def node_figures(curve: bool) -> Iterator[Figure]:
    few, many = COUNTS[0], COUNTS[-1]
    for case in CASES:
        for nodes in COUNTS[1:] if curve and case == "synthetic" else (many,):
            name, over, under = f"nodes, {case} {nodes:,}", f"{case} {nodes} round", f"{case} {few} round"
            yield Figure(name, over, under, at_most=1.3, at=nodes)
        yield Figure(f"{case}, start-up {many:,}", f"{case} {many} start-up", f"{case} {few} start-up")
        over, under = f"{case} {many} memory", f"{case} {few} memory"
        yield Figure(f"{case}, memory {many:,}", over, under, at_most=300, unit="MB")


# --- drawn nodes -----------------------------------------------------------------------------------------------------

NODES = 2_000
SCENES = {"mlr": ("mlr", "fedavg"), "mlr FedPNS": ("mlr", "fedpns"), "cnn-m": ("cnn-m", "fedavg")}


def by_drawn(setting: Setting) -> Iterator[Costs]:
    """Seconds per drawn node of a round without a test."""
    with Side("benchmarks.ours") as side:

        def per_node(scene: str, drawn: int) -> float:
            model, strategy = SCENES[scene]
            settings = {"nodes": NODES, "fraction": drawn / NODES, "strategy": strategy}
            most = 200 if model == "mlr" else 20  # nodes that are trained in about a quarter of a second
            rounds = max(1, most // drawn)
            answer = side.ask(model=model, rounds=rounds, test=False, settings=settings)
            return float(answer[setting.clock]) / drawn

        sides = {}
        for scene in SCENES:
            for drawn in DRAWN if setting.full or scene != "cnn-m" else DRAWN[:-1]:
                per_node(scene, drawn)  # a run's first round also trains its second one, so it is not counted
                sides[f"{scene} {drawn}"] = partial(per_node, scene, drawn)
        yield from in_turn(sides, setting.repeats)


ENTRIES = (
    Entry(
        "nodes",
        "FedPNS with many nodes against 50, 10 drawn, in one process: a round, start-up, peak memory",
        tuple(node_figures(curve=True)),
        by_nodes(actors=0),
        repeats=2,
    ),
    Entry(
        "nodes-on-ray",
        "the same on a Ray of its own with two actors; memory of all these processes",
        tuple(node_figures(curve=False)),
        by_nodes(actors=2),
        repeats=3,
        usual=False,
    ),
    Entry(
        "drawn",
        f"time per drawn node against that with 10 drawn of {NODES:,}, without tests (CNN-M with 1,000: --full)",
        tuple(
            Figure(f"drawn, {scene} {drawn:,}", f"{scene} {drawn}", f"{scene} {DRAWN[0]}", at_most=1.05, at=drawn)
            for scene in SCENES
            for drawn in DRAWN[1:]
        ),
        by_drawn,
        repeats=5,
        by_cpu=True,
    ),
)
