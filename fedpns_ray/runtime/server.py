"""The server's side of a run: the round loop, with a record and checkpoints around it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population
from fedpns_ray.recording import RunFolder, plain, summarise
from fedpns_ray.result import Result
from fedpns_ray.rounds import Executor, Progress, Record, rounds
from fedpns_ray.strategies.parts import Nodes, Vector

CHECKPOINT_EVERY = 10
"""Rounds between two checkpoints; what comes after the last one is done again, to the same bits."""


def serve(
    experiment: Experiment,
    population: Population,
    executor: Executor,
    initial_weights: Vector,
    out: Path | None = None,
    on_round: Callable[[Record], None] = lambda record: None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_every: int = CHECKPOINT_EVERY,
) -> Result | None:
    """Run an experiment to its end, from its folder's checkpoint if there is one.

    `stop` is asked after every round; if it says so, the run is left in its folder to be continued, and None comes back.
    """
    strategy = experiment.build_strategy()
    strategy.begin(Nodes(population.sizes, population.iid, experiment.per_round))
    progress = Progress(initial_weights)
    folder = RunFolder(out) if out else None
    records: list[Record] = []
    if folder:
        folder.open(experiment, progress, strategy)
    try:
        for record in map(plain, rounds(experiment, strategy, executor, progress)):
            t = record["round"]
            if folder:
                folder.append(record)  # not kept as well: a long run does not grow
            else:
                records.append(record)
            on_round(record)
            stopping = stop() and t < experiment.rounds
            if folder and (t % checkpoint_every == 0 or t == experiment.rounds or stopping):
                folder.checkpoint(progress, strategy)
            if stopping:
                return None
        records = folder.records() if folder else records
        summary = summarise(experiment, records, progress.weights, population.summary())
        if folder:
            folder.finish(progress.weights, summary)
    finally:
        if folder:
            folder.close()
    return Result(experiment, records, summary, progress.weights, out)
