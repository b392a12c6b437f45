"""Rounds of the same task: other engines, the limit, and this project's own layouts, in blocks that take turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.environments import PEERS, python_of
from benchmarks.harness import Costs, Entry, Figure, Setting, Unavailable, in_turn
from benchmarks.sides import Side
from benchmarks.task import write_task

BLOCK = {"mlr": 10, "cnn-m": 4, "cnn-c": 4}
"""Rounds of a block: one or two seconds of most engines."""
APART = 0.15
"""The most by which accuracies after equally many rounds may differ: engines draw other nodes and other batches."""
Ask = Callable[..., dict[str, Any]]


@contextmanager
def task_folder() -> Iterator[tuple[Path, ExitStack]]:
    """A folder for tasks, and a stack for the sides that read them."""
    with tempfile.TemporaryDirectory(prefix="bench-") as place, ExitStack() as stack:
        yield Path(place), stack


def block(side: Side, model: str, setting: Setting, **question: Any) -> Callable[[], float]:
    """Seconds per round of one block. The first block is not counted: it starts and warms up."""
    plain = model.partition("+")[0]

    def ask() -> float:
        return float(side.ask(model=model, rounds=BLOCK[plain], **question)[setting.clock])

    ask()
    return ask


@contextmanager
def bare(task: Path, setting: Setting, processes: int = 1) -> Iterator[Callable[[], float]]:
    """Seconds that the steps of a CNN-M round take with nothing around them, shared out over so many processes.

    One batch, over and over: no engine that takes these steps can be faster.
    """
    with ExitStack() as stack, ThreadPoolExecutor(processes) as pool:
        limits = [stack.enter_context(Side("benchmarks.limit", str(task), "cnn-m")) for _ in range(processes)]

        def ask(limit: Side) -> float:
            return float(limit.ask(bare=BLOCK["cnn-m"])[setting.clock])

        def together() -> float:
            return max(pool.map(ask, limits)) / processes

        together()
        yield together


def refuse_other_learning(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """After equally many rounds both must have learned about as much: otherwise it was not the same task."""
    if abs(ours["accuracy"] - theirs["accuracy"]) > APART:
        shown = f"{ours['accuracy']:.1%} here, {theirs['accuracy']:.1%} there"
        raise Unavailable(f"{name} did not learn the same: after equally many rounds, accuracy {shown}")


def against_flower(setting: Setting) -> Iterator[Costs]:
    models = ("mlr", "cnn-m")
    with task_folder() as (folder, stack):
        for model in models:
            write_task(model, folder)
        flower = Side("benchmarks.peers.flower", str(folder / "{}.npz"), python=python_of("flower"))
        theirs, ours = stack.enter_context(flower), stack.enter_context(Side("benchmarks.ours", "on Ray"))
        sides = {}
        for model in models:
            sides[f"flower {model}"] = block(theirs, model, setting)
            sides[f"ours {model}"] = block(ours, model, setting, test=False)
        sides["flower cnn-m+channels-last"] = block(theirs, "cnn-m+channels-last", setting)
        sides["bare cnn-m"] = stack.enter_context(bare(folder / "cnn-m.npz", setting, 2))
        yield from in_turn(sides, setting.repeats)
        for model in models:
            here, there = ours.ask(model=model, accuracy=True, test=False), theirs.ask(model=model, accuracy=True)
            refuse_other_learning(f"Flower with {model}", here, there)


def against_pfl(setting: Setting) -> Iterator[Costs]:
    with task_folder() as (folder, stack):
        ours, python, sides, pairs = stack.enter_context(Side("benchmarks.ours")), python_of("pfl"), {}, {}
        for name in ("mlr", "cnn-m", "cnn-m+channels-last"):
            model = name.partition("+")[0]
            path = str(write_task(model, folder))
            theirs = stack.enter_context(Side("benchmarks.peers.pfl_research", path, name, python=python))
            sides[f"pfl {name}"] = block(theirs, name, setting)
            if name == model:
                sides[f"ours {model}"] = block(ours, model, setting, test=False)
                pairs[model] = theirs
        sides["bare cnn-m"] = stack.enter_context(bare(folder / "cnn-m.npz", setting))
        yield from in_turn(sides, setting.repeats)
        for model, theirs in pairs.items():
            here = ours.ask(model=model, accuracy=True, test=False)
            refuse_other_learning(f"pfl with {model}", here, theirs.ask(accuracy=True))


def against_the_limit(setting: Setting) -> Iterator[Costs]:
    """Training, aggregation and test; and the limit's own CNN-M step against a bare one."""
    with task_folder() as (folder, stack):
        ours, sides, pairs = stack.enter_context(Side("benchmarks.ours")), {}, {}
        for model in BLOCK:
            path = str(write_task(model, folder))
            pairs[model] = stack.enter_context(Side("benchmarks.limit", path, model))
            sides[f"limit {model}"] = block(pairs[model], model, setting, test=True)
            sides[f"ours {model}"] = block(ours, model, setting, test=True)
        for costs in in_turn(sides, setting.repeats):
            steps = pairs["cnn-m"].ask(steps=20)
            yield {**costs, "limit step": steps["within"], "bare step": steps["bare"]}
        for model, limit in pairs.items():
            here = ours.ask(model=model, accuracy=True, test=True)
            refuse_other_learning(f"the limit with {model}", here, limit.ask(accuracy=True))


def two_actors(setting: Setting) -> Iterator[Costs]:
    with task_folder() as (folder, stack):
        alone, actors = (stack.enter_context(Side("benchmarks.ours", layout)) for layout in ("in process", "on Ray"))
        sides = {}
        for model in ("mlr", "cnn-m"):
            sides[f"alone {model}"] = block(alone, model, setting, test=True)
            sides[f"actors {model}"] = block(actors, model, setting, test=True)
        task = write_task("cnn-m", folder)
        sides |= {f"bare {count}": stack.enter_context(bare(task, setting, count)) for count in (1, 2)}
        yield from in_turn(sides, setting.repeats)


PHASES = ("draw", "train", "evaluate", "transfer", "aggregate")
PROFILED = {f"{model} {layout}": (model, layout) for layout in ("in process", "on Ray") for model in ("mlr", "cnn-m")}
PROFILED["cnn-c in process"] = ("cnn-c", "in process")


def profile(setting: Setting) -> Iterator[Costs]:
    """Where the seconds of a round of FedPNS go; on Ray, training and testing are those of the busiest actor."""
    with task_folder() as (_, stack):
        sides = {layout: stack.enter_context(Side("benchmarks.ours", layout)) for layout in ("in process", "on Ray")}
        for repeat in range(setting.repeats + 1):
            found: dict[str, float] = {}
            for name, (model, layout) in PROFILED.items():
                answer = sides[layout].ask(
                    model=model, rounds=BLOCK[model], test=True, settings={"strategy": "fedpns", "sigma": 0.3}
                )
                found |= {f"{name} {phase}": answer["phases"][phase] for phase in PHASES}
                found[f"{name} round"] = sum(answer["phases"].values())
            if repeat:
                yield found


ENTRIES = (
    Entry(
        "flower",
        f"a round (training and aggregation) of {PEERS['flower']} against this project, both on Ray with 2 actors",
        (
            Figure("mlr", "flower mlr", "ours mlr", at_least=12),
            Figure("cnn-m", "flower cnn-m", "ours cnn-m", at_least=3),
            Figure(
                "cnn-m, against bare steps on two cores: all that is possible", "flower cnn-m", "bare cnn-m", at_least=1
            ),
            Figure("cnn-m, Flower with channels last", "flower cnn-m+channels-last", "ours cnn-m", at_least=1),
        ),
        against_flower,
        repeats=7,
    ),
    Entry(
        "pfl",
        f"a round (training and aggregation) of {PEERS['pfl']} against this project, both in one process",
        (
            Figure("mlr", "pfl mlr", "ours mlr", at_least=3),
            Figure("cnn-m", "pfl cnn-m", "ours cnn-m", at_least=1.5),
            Figure("cnn-m, against bare steps: all that is possible", "pfl cnn-m", "bare cnn-m", at_least=1),
            Figure("cnn-m, pfl with channels last", "pfl cnn-m+channels-last", "ours cnn-m", at_least=1),
        ),
        against_pfl,
        repeats=7,
        by_cpu=True,
    ),
    Entry(
        "limit",
        "a round (training, aggregation, full test) of this project in one process against benchmarks/limit.py",
        (
            Figure("mlr", "ours mlr", "limit mlr"),
            Figure("cnn-m", "ours cnn-m", "limit cnn-m", at_most=1.1),
            Figure("cnn-c", "ours cnn-c", "limit cnn-c", at_most=1.1),
            Figure("the limit's own CNN-M step, against a bare one", "limit step", "bare step", at_most=1.05),
        ),
        against_the_limit,
        repeats=5,
        by_cpu=True,
    ),
    Entry(
        "actors",
        "a round (training, aggregation, full test) in one process against 2 actors",
        (
            Figure("cnn-m", "alone cnn-m", "actors cnn-m", at_least=1.7),
            Figure("mlr", "alone mlr", "actors mlr", at_least=0.8),
            Figure(
                "bare steps of cnn-m in one process against two: all that is possible", "bare 1", "bare 2", at_least=1
            ),
        ),
        two_actors,
        repeats=7,
    ),
    Entry(
        "profile",
        "where a round of FedPNS (10 of 50 nodes, full test) spends its time",
        tuple(
            Figure(f"{name}: {phase}", f"{name} {phase}", f"{name} round")
            for name in PROFILED
            for phase in PHASES
            if phase != "transfer" or "on Ray" in name
        ),
        profile,
        repeats=3,
    ),
)
