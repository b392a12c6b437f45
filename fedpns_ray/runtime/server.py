"""The server's side of a run: the round loop, with a record and checkpoints around it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population
from fedpns_ray.recording import RunFolder, finite, summarise
from fedpns_ray.result import Result
from fedpns_ray.rounds import Executor, Progress, Record, known_nodes, rounds
from fedpns_ray.strategies.parts import Vector
from fedpns_ray.user_code import blamed_on

Serving = Generator[Record, None, Result]

CHECKPOINT_EVERY = 10
"""Rounds between two checkpoints; what comes after the last one is done again, to the same bits."""


def serve(
    experiment: Experiment,
    population: Population,
    executor: Executor,
    initial_weights: Vector,
    out: Path | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
) -> Serving:
    """Run an experiment, from its folder's checkpoint if there is one: yields every record, returns the result.

    Whoever has enough closes the generator; the run is then left in its folder to be continued from that very round.
    """
    strategy = experiment.build_strategy()
    nodes = known_nodes(experiment, population, initial_weights.nbytes)
    strategy.begin(nodes)
    progress = Progress(initial_weights)
    folder = RunFolder(out) if out else None
    records: list[Record] = []
    if folder:
        folder.open(experiment, progress, strategy)
    try:
        with blamed_on(experiment.user_packages):
            for record in map(finite, rounds(experiment, nodes, strategy, executor, progress)):
                t = record["round"]
                due = (t % checkpoint_every == 0 or t == experiment.rounds) and "diverged" not in record
                if folder:
                    folder.append(record)  # not kept as well: a long run does not grow
                    if due:
                        folder.checkpoint(progress, strategy)
                else:
                    records.append(record)
                try:
                    yield record
                except GeneratorExit:
                    if folder and not due and "diverged" not in record:
                        folder.checkpoint(progress, strategy)
                    raise
        records = folder.records() if folder else records
        summary = summarise(experiment, records, progress.weights, population.summary(), executor.hardware)
        if folder:
            folder.finish(progress.weights, summary)
    finally:
        if folder:
            folder.close()
    return Result(experiment, records, summary, progress.weights, out)


def follow(
    serving: Serving, rounds: int, on_round: Callable[[Record], None], stop: Callable[[], bool]
) -> Result | None:
    """Serve to the end, or until `stop`, asked after every round but the last, says so: then None comes back."""
    with closing(serving):
        while True:
            try:
                record = next(serving)
            except StopIteration as end:
                return end.value
            on_round(record)
            if stop() and record["round"] < rounds:
                return None
