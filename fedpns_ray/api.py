"""run: one experiment, from its description to its result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population, build_population
from fedpns_ray.recording import RunFolder
from fedpns_ray.result import Result, load
from fedpns_ray.rounds import Record
from fedpns_ray.strategies.parts import Nodes


class Interrupted(Exception):
    """The run was asked to stop; its folder is ready to be continued."""


def run(
    experiment: Experiment,
    out: Path | str | None = None,
    on_round: Callable[[Record], None] = lambda record: None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Run an experiment. With a folder, a finished run is read and an unfinished one is continued.

    >>> from fedpns_ray import Experiment, run
    >>> run(Experiment(strategy="fedpns", sigma=0.2, rounds=50)).rounds["test_accuracy"].plot()
    """
    folder = RunFolder(Path(out)) if out else None
    if folder:
        folder.claim(experiment)
        summary = folder.summary()
        if summary and summary["rounds"] == experiment.rounds:
            return load(folder.path)
    population = build_population(experiment)
    result = _in_process(experiment, population, folder.path if folder else None, on_round, stop)
    if result is None:
        raise Interrupted
    return result


def _in_process(
    experiment: Experiment,
    population: Population,
    out: Path | None,
    on_round: Callable[[Record], None],
    stop: Callable[[], bool],
) -> Result | None:
    from fedpns_ray.runtime.in_process import InProcessExecutor
    from fedpns_ray.runtime.server import serve
    from fedpns_ray.training import Worker, one_thread

    experiment.build_strategy().begin(Nodes(population.sizes, population.iid, experiment.per_round))  # refuse early
    with one_thread():
        worker = Worker(experiment, population)
        executor = InProcessExecutor(worker, len(population.samples.test_y))
        return serve(experiment, population, executor, worker.initial_weights, out, on_round, stop)
