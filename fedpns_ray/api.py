"""run: one experiment, from its description to its result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population, build_population
from fedpns_ray.recording import RunFolder
from fedpns_ray.result import Result, load
from fedpns_ray.rounds import Record
from fedpns_ray.runtime.layout import Layout
from fedpns_ray.runtime.server import CHECKPOINT_EVERY, serve
from fedpns_ray.strategies.parts import Nodes


class Interrupted(Exception):
    """The run was asked to stop; its folder is ready to be continued."""


def run(
    experiment: Experiment,
    out: Path | str | None = None,
    on_round: Callable[[Record], None] = lambda record: None,
    stop: Callable[[], bool] = lambda: False,
    layout: Layout | None = None,
    address: str | None = None,
    say: Callable[[str], None] = lambda message: None,
    timeline: Path | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
) -> Result:
    """Run an experiment. With a folder, a finished run is read and an unfinished one is continued.

    Without a layout everything happens in this process; with one (`Layout()` leaves all to be planned) on Ray actors, to
    the same bits: on the cluster at `address` (or RAY_ADDRESS), or on a Ray started for this run. `on_round` sees every
    record, `stop` is asked after each round, `say` gets messages for people, `timeline` is where Ray's timeline goes.

    >>> from fedpns_ray import Experiment, run
    >>> run(Experiment(strategy="fedpns", sigma=0.2, rounds=50)).rounds["test_accuracy"].plot()
    """
    folder = RunFolder(Path(out)) if out else None
    if folder:
        folder.claim(experiment)
        summary = folder.summary()
        if summary and summary["rounds"] == experiment.rounds:
            return load(folder.path)
    population = _checked_population(experiment)
    where = folder.path if folder else None
    if layout is None:
        result = _in_process(experiment, population, where, on_round, stop, checkpoint_every)
    else:
        from fedpns_ray.runtime.ray_run import run_on_ray
        from fedpns_ray.runtime.session import session

        with session(address):
            result = run_on_ray(experiment, population, layout, where, on_round, stop, say, timeline, checkpoint_every)
    if result is None:
        raise Interrupted
    return result


def check(experiment: Experiment, out: Path | str, with_data: bool = True) -> None:
    """Refuse what `run` would refuse, without running or writing anything."""
    RunFolder(Path(out)).claim(experiment)
    if with_data:
        _checked_population(experiment)


def _checked_population(experiment: Experiment) -> Population:
    """The population, and an InputError if the model or the strategy cannot work with it."""
    from fedpns_ray.models import build_model

    population = build_population(experiment)
    build_model(experiment.model, population.samples.shape, population.samples.classes, experiment.seed)
    experiment.build_strategy().begin(Nodes(population.sizes, population.iid, experiment.per_round))
    return population


def _in_process(
    experiment: Experiment,
    population: Population,
    out: Path | None,
    on_round: Callable[[Record], None],
    stop: Callable[[], bool],
    checkpoint_every: int,
) -> Result | None:
    from fedpns_ray.runtime.in_process import InProcessExecutor
    from fedpns_ray.training import Worker, one_thread

    with one_thread():
        worker = Worker(experiment, population)
        executor = InProcessExecutor(worker)
        return serve(experiment, population, executor, worker.initial_weights, out, on_round, stop, checkpoint_every)
