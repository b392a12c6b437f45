"""What there is to look at: runs, gathered from run folders, studies, and folders of runs, on this machine or in a bucket."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedpns_ray.core.run import Record
from fedpns_ray.data import count_iid
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment, folder_name
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.storage import COMMANDS, Storage
from fedpns_ray.records.summary import diverged_in, is_over
from fedpns_ray.reporting.tables import Results, tabulate
from fedpns_ray.strategies import KINDS
from fedpns_ray.study.study_file import Plot, Study, Trial, read_study

READ = ("config.yaml", "rounds.jsonl", "summary.json")
"""Of a run folder in a bucket, what is copied here to be read."""
TARGETS = [0.8, 0.9]


@dataclass(frozen=True)
class Run:
    """A run folder as it stands: finished, or as far as it has come."""

    path: Path
    experiment: Experiment
    records: list[Record]
    summary: dict[str, Any] | None

    @property
    def over(self) -> bool:
        """It will not go on: all its rounds are done, or it diverged."""
        return is_over(self.summary, self.experiment.rounds)

    @property
    def diverged(self) -> bool:
        return self.summary is not None and diverged_in(self.summary) is not None

    @property
    def finished(self) -> bool:
        return self.over and not self.diverged

    @property
    def status(self) -> str:
        return "finished" if self.finished else "diverged" if self.over else "unfinished"

    @property
    def iid_nodes(self) -> int:
        return count_iid(self.experiment)

    @cached_property
    def parameters(self) -> int | None:
        """Of the model: from the header of its weights, or from the last checkpoint."""
        try:
            with (self.path / "weights.safetensors").open("rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                return int(json.loads(file.read(size))["weights"]["shape"][0])
        except (OSError, ValueError, KeyError, struct.error):
            try:
                with np.load(self.path / "checkpoint.npz") as state:
                    return int(state["weights"].size)
            except (OSError, ValueError, KeyError, EOFError):
                return None


@dataclass(frozen=True)
class Source:
    """A folder that was named, or the URI of one."""

    place: str
    kind: str
    """run, study or runs."""
    study: Study | None = None
    """As a study's file has it; None where that cannot be read here."""
    study_file: str = ""
    """The text of a study's file."""
    commands: tuple[str, ...] = ()
    """What a study was run with."""

    @property
    def name(self) -> str:
        return Path(self.place.partition("?")[0]).resolve().name


@dataclass(frozen=True)
class Gathered:
    """Runs, and the study that says how to look at them."""

    study: Study
    runs: list[Run]
    sources: list[Source]
    notes: list[str]
    """What is missing or was left out, in sentences."""
    expected: int
    """How many runs there will be: a study's trials, or what is there."""

    @cached_property
    def trials(self) -> list[Trial]:
        return self.study.trials

    @cached_property
    def results(self) -> Results:
        found = [(trial, run.summary, run.records) for trial, run in zip(self.trials, self.runs, strict=True)]
        return tabulate(self.study, found, {})


def gather(places: Sequence[str | Path]) -> Gathered:
    """Every run in these folders, each experiment once. A folder that holds none is an InputError."""
    sources: list[Source] = []
    notes: list[str] = []
    found: dict[str, Run] = {}
    twice = 0
    for place in places:
        source, runs = _from_bucket(Storage(str(place)), notes) if "://" in str(place) else _from(Path(place), notes)
        sources.append(source)
        for run in runs:
            name = folder_name(run.experiment)
            twice += name in found
            if name not in found or len(run.records) > len(found[name].records):
                found[name] = run
    if not found:
        raise InputError(f"{sources[0].place}: holds no run yet (nothing with a config.yaml that can be read)")
    if twice:
        notes.append(
            f"{twice} folder{'s hold' if twice > 1 else ' holds'} an experiment that another holds too; shown once, by the longest run."
        )
    own = sources[0].study if len(sources) == 1 else None
    study = _study(own, ", ".join(source.name for source in sources), found)
    runs = [found[trial.name] for trial in study.trials]
    notes += _not_counted(runs)
    return Gathered(study, runs, sources, notes + _missing(own, found), _expected(own, found))


def _not_counted(runs: Sequence[Run]) -> list[str]:
    """What tables and statistics leave out."""
    notes = []
    unfinished, diverged = sum(not run.over for run in runs), sum(run.diverged for run in runs)
    if unfinished:
        verb = "are" if unfinished > 1 else "is"
        shown = "shown as far as they go, and no part of tables and statistics"
        notes.append(f"{unfinished} of {len(runs)} runs {verb} not finished: {shown}.")
    if diverged:
        notes.append(
            f"{diverged} of {len(runs)} runs diverged: they are counted in the table, and no part of its means."
        )
    lost = sum(int((run.summary or {}).get("non_finite_updates") or 0) for run in runs)
    if lost:
        notes.append(f"{lost} updates were not finite and were left out of their rounds.")
    return notes


def _from(path: Path, notes: list[str]) -> tuple[Source, list[Run]]:
    if not path.exists():
        raise InputError(f"{path}: there is no such folder")
    if (path / "config.yaml").exists():
        return Source(str(path), "run"), _read([path], None)
    if (path / "study.yaml").exists():
        folders = sorted(child.parent for child in path.glob("trials/*/config.yaml"))
        return _study_source(path), _read(folders, notes)
    folders = sorted(child.parent for child in path.glob("*/config.yaml")) if path.is_dir() else []
    if not folders:
        raise InputError(f"{path}: is no run, no study and no folder of runs (no config.yaml or study.yaml in it)")
    return Source(str(path), "runs"), _read(folders, notes)


def _from_bucket(storage: Storage, notes: list[str]) -> tuple[Source, list[Run]]:
    """The same of a URI: what a report reads is copied here, and gone again."""
    top = storage.names()
    runs = [""] if "config.yaml" in top else [f"trials/{name}" for name in storage.names("trials")] or top
    wanted = ["study.yaml", COMMANDS, *(f"{run}/{name}".lstrip("/") for run in runs for name in READ)]
    with tempfile.TemporaryDirectory(prefix="fedpns-") as own:
        copy = Path(own) / Path(storage.place.partition("?")[0]).name
        for name, content in zip(wanted, storage.read_all(wanted), strict=True):
            if content is not None:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                (copy / name).write_bytes(content)
        if not copy.exists():
            raise InputError(
                f"{storage}: is no run, no study and no folder of runs (no config.yaml or study.yaml in it)"
            )
        source, found = _from(copy, notes)
    return replace(source, place=str(storage)), found


def _study_source(path: Path) -> Source:
    name = path.resolve().name
    try:
        study: Study | None = read_study(path / "study.yaml", importing=False)
    except InputError:  # the runs tell enough
        study = None
    if study:
        study = replace(study, name=name, title=name if study.title == "study" else study.title)
    commands = path / COMMANDS
    return Source(
        str(path),
        "study",
        study,
        (path / "study.yaml").read_text(encoding="utf-8"),
        tuple(commands.read_text(encoding="utf-8").splitlines()) if commands.exists() else (),
    )


def _read(folders: Sequence[Path], notes: list[str] | None) -> list[Run]:
    """The runs; one of many that cannot be read is a note instead of an error."""
    found = []
    for folder in folders:
        try:
            found.append(_read_one(folder))
        except InputError as error:
            if notes is None:
                raise
            notes.append(f"{folder.name} was left out: {error}")
    return found


def _read_one(folder: Path) -> Run:
    files = RunFolder(folder)
    experiment = files.experiment
    assert experiment is not None
    summary = files.summary()
    if damage := files.damage(with_weights=False):  # weights are not shown, and not copied here from a bucket
        raise InputError(f"{folder} is damaged: {damage}")
    return Run(folder, experiment, files.records(), summary)


def _study(own: Study | None, name: str, found: dict[str, Run]) -> Study:
    """The study's own file where there is one alone; else what tells the runs apart. Its trials are the runs."""
    known = _matched(own, found)
    order = [name for name in known if name in found] + [name for name in found if name not in known]
    trials = [known.get(name) or Trial(found[name].experiment, found[name].experiment.settings()) for name in order]
    trials = [replace(trial, experiment=found[name].experiment) for name, trial in zip(order, trials, strict=True)]
    differing = _axes([found[name].experiment for name in order])
    if own:
        axes = [key for key in own.axes if key in differing]
        return replace(own, trials=trials, axes=axes + [key for key in differing if key not in axes])
    return Study(name, name, trials, differing, {"strategy": "fedavg"}, TARGETS, Plot(), None, 1.0, None, None)


def _matched(own: Study | None, found: dict[str, Run]) -> dict[str, Trial]:
    """A study's trials by the names of their runs; those without one keep their own names.

    A part of the user's own is not imported, so a trial with one does not know its parameters, nor its name: its run is
    the one that it agrees with.
    """
    matched: dict[str, Trial] = {}
    for trial in own.trials if own else ():
        name = trial.name
        if name not in found and not trial.experiment.imported:
            agreeing = (run for run, it in found.items() if trial.experiment.agrees_with(it.experiment))
            name = next(agreeing, name)
        matched[name] = trial
    return matched


def _axes(experiments: Sequence[Experiment]) -> list[str]:
    """Settings that tell runs apart. Where only some have one (alpha), it counts if those differ in it."""
    settings = [experiment.settings() for experiment in experiments]
    keys = dict.fromkeys(key for own in settings for key in own if key not in ("seed", "rounds"))
    kept = []
    for key in keys:
        values = {str(own.get(key)) for own in settings if key in ("strategy", *KINDS) or key in own}
        if len(values) > 1:
            kept.append(key)
    return kept


def _missing(own: Study | None, found: dict[str, Run]) -> list[str]:
    if own is None or own.search:
        return []
    trials = _matched(own, found)
    absent = [name for name in trials if name not in found]
    if not absent:
        return []
    return [
        f"{len(absent)} of the study's {len(trials)} trials are not there yet; the same `fedpns study` command runs them."
    ]


def _expected(own: Study | None, found: dict[str, Run]) -> int:
    return len({*_matched(own, found), *found}) if own and not own.search else len(found)
