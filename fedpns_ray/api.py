"""What the command line and Python share: run, run_study, compare, report."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from typing_extensions import Unpack

from fedpns_ray.data import build_population
from fedpns_ray.data.fit import check_fits
from fedpns_ray.errors import DivergedError, InputError, Shown
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.file_names import STUDY, SUMMARY
from fedpns_ray.records.record import Record
from fedpns_ray.records.result import Result, load
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.summary import is_over
from fedpns_ray.runtime.driver import CHECKPOINT_EVERY, Following, Recording, follow
from fedpns_ray.runtime.layout import Layout
from fedpns_ray.runtime.memory import actors_here, refuse_too_large
from fedpns_ray.validation import suggestion

if TYPE_CHECKING:
    from fedpns_ray.progress.run_bar import RunProgress
    from fedpns_ray.progress.study_view import StudyProgress
    from fedpns_ray.records.storage import Storage
    from fedpns_ray.reporting.study_result import StudyResult
    from fedpns_ray.study.study_file import Study

logger = logging.getLogger(__name__)


class Interrupted(Exception):
    """The run was asked to stop; running it again resumes from its folder."""


# --- one run ---------------------------------------------------------------------------------------------------------


class RunOptions(TypedDict, total=False):
    """Options of `run`."""

    on_round: Callable[[Record], None]
    """Called with the record of every round."""
    stop: Callable[[], bool]
    """Asked after each round: True stops the run, with a checkpoint, and `run` raises Interrupted."""
    checkpoint_every: int
    """Rounds between two checkpoints, at least 1 (default: 10)."""
    timeline: Path | str | None
    """File for Ray's timeline; only used with a layout."""


def run(
    experiment: Experiment,
    out: Path | str | None = None,
    *,
    layout: Layout | None = None,
    address: str | None = None,
    progress: bool | RunProgress = True,
    **options: Unpack[RunOptions],
) -> Result:
    """Run an experiment. With a folder `out`, a finished run is read and an unfinished one is resumed.

    Without a layout everything happens in this process. With one (`Layout()` plans everything automatically) the run
    uses Ray actors, with the same bits: on the cluster at `address` (or RAY_ADDRESS), or on a Ray started for this run.
    `progress` shows a bar on stderr, if that is a terminal or a notebook; False shows nothing; an object with the
    methods of RunProgress is used as it is. A run that diverges raises DivergedError, which holds its result.

    >>> from fedpns_ray import Experiment, run
    >>> run(Experiment(strategy="fedpns", sigma=0.2, rounds=50)).rounds["test_accuracy"].plot()
    """
    _refuse_unknown(options, RunOptions)
    folder, timeline = RunFolder(Path(out)) if out else None, options.get("timeline")
    recording = Recording(
        folder.path if folder else None,
        options.get("checkpoint_every", CHECKPOINT_EVERY),
        Path(timeline) if timeline else None,
    )
    shown = _run_progress(progress)
    with shown:
        shown.begin(experiment)
        result = _finished(folder, experiment) if folder else None
        if result is not None:
            shown.advance(result.records[-1])
        else:
            result = _performed(experiment, recording, _following(shown, options), layout, address)
    if result is None:
        raise Interrupted
    if result.diverged:
        raise DivergedError(result)
    return result


def _refuse_unknown(options: Mapping[str, Any], known: type) -> None:
    for name in options:
        if name not in known.__annotations__:
            raise InputError(name, problem="is unknown", hint=suggestion(name, known.__annotations__))


def _run_progress(progress: bool | RunProgress) -> RunProgress:
    if not isinstance(progress, bool):
        return progress
    from fedpns_ray.progress.messages import level_for, stderr_console
    from fedpns_ray.progress.run_bar import RunBar

    console = stderr_console()
    return RunBar(console, level_for(console, progress))


def _following(shown: RunProgress, options: RunOptions) -> Following:
    own = options.get("on_round")

    def on_round(record: Record) -> None:
        shown.advance(record)
        if own:
            own(record)

    return Following(on_round, options.get("stop", Following().stop))


def _finished(folder: RunFolder, experiment: Experiment) -> Result | None:
    """The run in a folder if it is over and undamaged. A damaged one is logged, and its damaged part is run again."""
    folder.claim(experiment)
    try:
        summary = folder.summary()
        if summary is None or not is_over(summary, experiment.rounds):
            return None
        damage = folder.damage()
    except InputError:
        damage = f"{SUMMARY} cannot be read"
    if damage is None:
        return replace(load(folder.path), experiment=experiment)
    logger.warning(
        "%s is damaged: %s; it is repaired from its checkpoint, or run again, to the same bits", folder.path, damage
    )
    return None


def _performed(
    experiment: Experiment, recording: Recording, following: Following, layout: Layout | None, address: str | None
) -> Result | None:
    """The result of the run, in this process or on Ray; None if it was stopped."""
    refuse_too_large(experiment, None if layout is None else actors_here(layout, experiment, address))
    population = build_population(experiment)
    check_fits(experiment, population)
    if layout is None:
        from fedpns_ray.core.threads import one_thread
        from fedpns_ray.runtime.in_process import in_process

        with one_thread():
            return follow(in_process(experiment, population, recording), following)
    from fedpns_ray.runtime.ray_run import run_on_ray
    from fedpns_ray.runtime.session import session

    with session(address):
        return run_on_ray(experiment, population, layout, recording, following)


# --- studies ---------------------------------------------------------------------------------------------------------


class StudyOptions(TypedDict, total=False):
    """Options of `run_study` and `compare`."""

    stop: Callable[[], bool]
    """Polled while trials run: True stops the study; running it again resumes it."""
    resume: bool
    """Refuse to start from scratch: `out` must hold the study (which is resumed in any case)."""
    cpu_fallback: bool
    """Train on the CPU where a trial is given a GPU that torch cannot use; otherwise that is refused."""
    patience: float | None
    """Seconds that a worker may be silent, at least, before it is killed and its work done again (default: 60)."""
    fuse: str | int | None
    """How many trials that share their shapes run in one worker: auto, off, or a number (default: the file's)."""
    verbose: bool
    """Print Ray Tune's own log instead of the live table."""
    mlflow: str | None
    """Also log to this MLflow folder, database or tracking server."""
    wandb: str | None
    """Also log to this Weights & Biases project."""
    command: str
    """The command to note in the study's folder (default: the one that runs the study file there)."""


def run_study(
    study: Study | Mapping[str, Any] | Path | str,
    out: Path | str | None = None,
    *,
    address: str | None = None,
    progress: bool | StudyProgress = True,
    **options: Unpack[StudyOptions],
) -> StudyResult:
    """Run the missing trials of a study, on Ray, and leave its tables, curves and page in `out` (default: runs/NAME).

    `study` is the path of a study file, the keys and values of one, or a Study, as `read_study` returns it; `out` is a
    folder or a URI. `progress` shows a live table on stderr, if that is a terminal or a notebook; False shows nothing;
    an object with the methods of StudyProgress is used as it is.

    >>> from fedpns_ray import run_study
    >>> print(run_study("tune/fig1.yaml").verdict)
    """
    _refuse_unknown(options, StudyOptions)
    from fedpns_ray.reporting.study_result import concluded
    from fedpns_ray.study import engine
    from fedpns_ray.study.loggers import loggers
    from fedpns_ray.study.tune import Watching

    described, storage = prepared(study, out, options)
    extra = loggers(described.name, storage, options.get("mlflow"), options.get("wandb"))
    verbose = options.get("verbose", False)
    shown = _study_progress(progress, described, verbose)
    watching = Watching(shown, options.get("stop", Watching().stop), verbose, extra)
    with shown:
        outcome = engine.run_study(described, storage, watching, address, _noted(study, storage, options))
        result = concluded(described, storage, outcome)
        if not outcome.stopped:
            for name, error in outcome.errors.items():
                logger.warning("failed: %s: %s", name, error)
            for name, round in result.diverged.items():
                logger.warning("diverged in round %d: %s", round, name)
    return result


def prepared(
    study: Study | Mapping[str, Any] | Path | str, out: Path | str | None, options: StudyOptions
) -> tuple[Study, Storage]:
    """The study with the options applied, and its storage; a storage that cannot hold it is refused."""
    from fedpns_ray.records.storage import Storage
    from fedpns_ray.study.fuse import checked_fuse
    from fedpns_ray.study.study_file import Study, read_study

    described = study if isinstance(study, Study) else read_study(Path(study) if isinstance(study, str) else study)
    if options.get("cpu_fallback"):
        layout = described.layout and replace(described.layout, cpu_fallback=True)
        described = replace(described, cpu_fallback=True, layout=layout)
    if patience := options.get("patience"):
        layout = described.layout and replace(described.layout, patience=patience)
        described = replace(described, patience=patience, layout=layout)
    if (fuse := options.get("fuse")) is not None:
        described = replace(described, fuse=checked_fuse(fuse))
    storage = Storage(out or Path("runs") / described.name)
    storage.check()
    if options.get("resume") and STUDY not in storage.names():
        raise InputError("resume", Shown(storage), problem="holds no study to resume")
    return described, storage


def _noted(study: Any, storage: Storage, options: StudyOptions) -> str:
    """The command to note in the study's folder. A Study may differ from its file, so its command must be given."""
    from fedpns_ray.study.study_file import Study

    default = "" if isinstance(study, Study) else resuming(storage)
    return options.get("command", default)


def resuming(storage: Storage) -> str:
    """The command that runs the study file in a study's folder."""
    return shlex.join(["fedpns", "study", f"{storage}/{STUDY}", "--out", str(storage)])


def _study_progress(progress: bool | StudyProgress, study: Study, verbose: bool) -> StudyProgress:
    """The display of a study. With `verbose` there is no live table: Ray Tune prints its own log instead."""
    if not isinstance(progress, bool):
        return progress
    from fedpns_ray.progress.messages import level_for, stderr_console
    from fedpns_ray.progress.study_view import StudyView

    console = stderr_console()
    level = level_for(console, progress)
    return StudyView(console, study, max(level, logging.WARNING) if verbose else level)


def compare(
    strategies: Sequence[Any] = ("fedpns", "fedavg"),
    seeds: Sequence[int] | str = "1-5",
    out: Path | str | None = None,
    *,
    address: str | None = None,
    progress: bool | StudyProgress = True,
    **settings: Any,
) -> StudyResult:
    """Compare strategies (names, import paths, or objects) with the same seeds and data: a study made from settings.

    `settings` are those of Experiment, and may include options of `run_study`.

    >>> from fedpns_ray import compare
    >>> print(compare(["fedpns", "fedavg"], seeds="1-5", rounds=60).verdict)
    """
    from fedpns_ray.study.comparison import comparison
    from fedpns_ray.study.seeds import parse_seeds

    options: Any = {name: settings.pop(name) for name in list(settings) if name in StudyOptions.__annotations__}
    listed = parse_seeds(seeds if isinstance(seeds, str) else list(seeds))
    study = comparison(settings, list(strategies), listed)
    out = out or Path("runs") / study.name
    if "command" not in options:
        from fedpns_ray.records.storage import Storage

        options["command"] = resuming(Storage(out))  # the study file describes a comparison completely
    return run_study(study, out, address=address, progress=progress, **options)


# --- reports ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """A page that was written."""

    path: Path
    runs: int
    notes: list[str]
    """What a reader of the page should know, such as runs that were left out."""
    figures: list[str]
    """Names of the figures for a paper."""

    def __fspath__(self) -> str:
        return str(self.path)


def report(*places: Path | str, out: Path | str = "report.html", figures: Path | str | None = None) -> Report:
    """Write runs and studies as one page; with a folder for `figures`, also figures for a paper, as PDF and PNG."""
    from fedpns_ray.reporting.collecting import gather
    from fedpns_ray.reporting.figures import write_figures
    from fedpns_ray.reporting.page import write_page

    gathered = gather(places)
    words = ["fedpns", "report", *(source.place for source in gathered.sources), "--out", str(out)]
    words += ["--figures", str(figures)] if figures else []
    write_page(gathered, Path(out), shlex.join(words))
    drawn = write_figures(gathered, Path(figures)) if figures else []
    return Report(Path(out), len(gathered.runs), list(gathered.notes), sorted({path.stem for path in drawn}))
