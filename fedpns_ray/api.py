"""What the command line and Python share: run, run_study, compare, report."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpns_ray.core.run import Record
from fedpns_ray.data import Population, build_population
from fedpns_ray.data.fit import check_fits
from fedpns_ray.errors import DivergedError, InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.result import Result, load
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.summary import is_over
from fedpns_ray.runtime.driver import CHECKPOINT_EVERY, Recording, follow
from fedpns_ray.runtime.layout import Layout

logger = logging.getLogger("fedpns_ray")

if TYPE_CHECKING:
    from fedpns_ray.reporting.study_result import StudyResult
    from fedpns_ray.study.study_file import Study
    from fedpns_ray.study.tune import Watch


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


# --- studies ---------------------------------------------------------------------------------------------------------


def run_study(
    study: Study | Mapping[str, Any] | Path | str,
    out: Path | str | None = None,
    *,
    whole: Study | None = None,
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
    address: str | None = None,
    **options: Any,
) -> StudyResult:
    """Run what is missing of a study, on Ray, and leave its tables, curves and page in `out` (default: runs/NAME).

    `study` is a Study, the path of a study file, or the keys and values of one; `out` a folder or a URI. `whole` is the study without the selection
    that was made of its trials, `watch` hears of progress, `stop` is asked again and again. `options`: the `command` to
    note down, and what Ray Tune takes: verbose, loggers.

    >>> from fedpns_ray import run_study
    >>> print(run_study("tune/fig1.yaml").verdict)
    """
    from fedpns_ray.records.storage import Storage
    from fedpns_ray.reporting.study_result import concluded
    from fedpns_ray.study import engine
    from fedpns_ray.study.study_file import Study, read_study
    from fedpns_ray.study.tune import Silent

    described = study if isinstance(study, Study) else read_study(Path(study) if isinstance(study, str) else study)
    storage = Storage(out or Path("runs") / described.name)
    storage.check()
    outcome = engine.run_study(described, storage, watch or Silent(), stop, address, **options)
    result = concluded(described, whole or described, storage, outcome)
    if watch is None:  # nobody else tells of them
        for name, error in outcome.errors.items():
            logger.warning("trial %s failed: %s", name, error)
        for name, round in result.diverged.items():
            logger.warning("trial %s diverged in round %d", name, round)
    return result


def compare(
    strategies: Sequence[Any] = ("fedpns", "fedavg"),
    seeds: Sequence[int] | str = "1-5",
    out: Path | str | None = None,
    *,
    address: str | None = None,
    **settings: Any,
) -> StudyResult:
    """Strategies (names, import paths, or objects) side by side with the same seeds and data: a study made from settings.

    >>> from fedpns_ray import compare
    >>> print(compare(["fedpns", "fedavg"], seeds="1-5", rounds=60).verdict)
    """
    from fedpns_ray.study.comparison import comparison
    from fedpns_ray.study.seeds import parse_seeds

    listed = parse_seeds(seeds if isinstance(seeds, str) else list(seeds))
    return run_study(comparison(settings, list(strategies), listed), out, address=address)


def report(*places: Path | str, out: Path | str = "report.html", figures: Path | str | None = None) -> Path:
    """Runs and studies as one page; with a folder for `figures`, also figures for a paper, as PDF and PNG."""
    from fedpns_ray.reporting.collecting import gather
    from fedpns_ray.reporting.figures import write_figures
    from fedpns_ray.reporting.page import write_page

    gathered = gather(places)
    words = ["fedpns", "report", *(source.place for source in gathered.sources), "--out", str(out)]
    write_page(gathered, Path(out), shlex.join(words))
    if figures:
        write_figures(gathered, Path(figures))
    return Path(out)
