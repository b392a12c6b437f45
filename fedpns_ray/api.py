"""run: one experiment, from its description to its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedpns_ray.core.run import Record
from fedpns_ray.data import Population, build_population
from fedpns_ray.data.fit import check_fits
from fedpns_ray.errors import DivergedError, InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.result import Result, load
from fedpns_ray.records.run_folder import RunFolder, is_over
from fedpns_ray.runtime.driver import CHECKPOINT_EVERY, Recording, follow
from fedpns_ray.runtime.layout import Layout


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
    A run that diverges raises DivergedError, which holds its result.

    >>> from fedpns_ray import Experiment, run
    >>> run(Experiment(strategy="fedpns", sigma=0.2, rounds=50)).rounds["test_accuracy"].plot()
    """
    folder = RunFolder(Path(out)) if out else None
    if folder:
        folder.claim(experiment)
        finished = _finished(folder, experiment, say)
        if finished:
            return _not_diverged(finished)
    population = _checked_population(experiment)
    recording = Recording(folder.path if folder else None, checkpoint_every)
    if layout is None:
        from fedpns_ray.core.training import one_thread
        from fedpns_ray.runtime.in_process import in_process

        with one_thread():
            result = follow(in_process(experiment, population, recording), on_round, stop)
    else:
        from fedpns_ray.runtime.ray_run import run_on_ray
        from fedpns_ray.runtime.session import session

        with session(address):
            result = run_on_ray(experiment, population, layout, recording, on_round, stop, say, timeline)
    if result is None:
        raise Interrupted
    return _not_diverged(result)


def _finished(folder: RunFolder, experiment: Experiment, say: Callable[[str], None]) -> Result | None:
    """The run in a folder if it is over and whole. If it is damaged that is said, and what is damaged is done again."""
    try:
        summary = folder.summary()
        if summary is None or not is_over(summary, experiment.rounds):
            return None
        damage = folder.damage()
    except InputError:
        damage = "summary.json cannot be read"
    if damage is None:
        return replace(load(folder.path), experiment=experiment)
    say(f"{folder.path} is damaged: {damage}; it is mended from its checkpoint, or run again, to the same bits")
    return None


def _not_diverged(result: Result) -> Result:
    if result.diverged:
        raise DivergedError(result)
    return result


def check(experiment: Experiment, out: Path | str, with_data: bool = True) -> None:
    """Refuse what `run` would refuse, without running or writing anything."""
    RunFolder(Path(out)).claim(experiment)
    if with_data:
        _checked_population(experiment)


def _checked_population(experiment: Experiment) -> Population:
    population = build_population(experiment)
    check_fits(experiment, population)
    return population
