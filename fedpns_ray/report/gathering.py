"""What there is to look at: runs, gathered from run folders, studies, and folders of runs."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedpns_ray.config import Experiment, folder_name
from fedpns_ray.data import count_iid
from fedpns_ray.errors import InputError
from fedpns_ray.recording import RunFolder
from fedpns_ray.rounds import Record
from fedpns_ray.study.results import Results, tabulate
from fedpns_ray.study.study_file import Plot, Study, Trial, read_study

PARTS = ("strategy", "selection", "objective", "aggregation")
TARGETS = [0.8, 0.9]


@dataclass(frozen=True)
class Run:
    """A run folder as it stands: finished, or as far as it has come."""

    path: Path
    experiment: Experiment
    records: list[Record]
    summary: dict[str, Any] | None

    @property
    def finished(self) -> bool:
        return self.summary is not None and self.summary["rounds"] == self.experiment.rounds

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
    """A folder that was named."""

    path: Path
    kind: str
    """run, study or runs."""
    study_file: str = ""
    """The text of a study's file."""


@dataclass(frozen=True)
class Gathered:
    """Runs, and the study that says how to look at them."""

    study: Study
    runs: list[Run]
    sources: list[Source]
    notes: list[str]
    """What is missing or was left out, in sentences."""

    @cached_property
    def trials(self) -> list[Trial]:
        return self.study.trials

    @cached_property
    def results(self) -> Results:
        found = [(trial, run.summary, run.records) for trial, run in zip(self.trials, self.runs, strict=True)]
        return tabulate(self.study, found, {})


def gather(paths: Sequence[Path]) -> Gathered:
    """Every run in these folders, each experiment once. A folder that holds none is an InputError."""
    sources: list[Source] = []
    notes: list[str] = []
    found: dict[str, Run] = {}
    twice = 0
    for path in paths:
        source, folders = _look_into(path)
        sources.append(source)
        for folder in folders:
            run = _read(folder, notes if source.kind != "run" else None)
            if run is None:
                continue
            name = folder_name(run.experiment)
            twice += name in found
            if name not in found or len(run.records) > len(found[name].records):
                found[name] = run
    if not found:
        raise InputError(f"{paths[0]}: holds no run yet (nothing with a config.yaml that can be read)")
    if twice:
        notes.append(
            f"{twice} folder{'s hold' if twice > 1 else ' holds'} an experiment that another holds too; shown once, by the longest run."
        )
    study = _study(sources, found)
    runs = [found[trial.name] for trial in study.trials]
    unfinished = sum(not run.finished for run in runs)
    if unfinished:
        notes.append(
            f"{unfinished} of {len(runs)} runs {'are' if unfinished > 1 else 'is'} not finished: shown as far as they go, and no part of tables and statistics."
        )
    return Gathered(study, runs, sources, notes + _missing(sources, found))


def expected_runs(gathered: Gathered) -> int:
    """How many runs there will be: a study's trials, or what is there."""
    own = _own_study(gathered.sources)
    return max(len(own.trials), len(gathered.runs)) if own and not own.search else len(gathered.runs)


def _look_into(path: Path) -> tuple[Source, list[Path]]:
    if not path.exists():
        raise InputError(f"{path}: there is no such folder")
    if (path / "config.yaml").exists():
        return Source(path, "run"), [path]
    if (path / "study.yaml").exists():
        folders = sorted(child.parent for child in path.glob("trials/*/config.yaml"))
        return Source(path, "study", (path / "study.yaml").read_text(encoding="utf-8")), folders
    folders = sorted(child.parent for child in path.glob("*/config.yaml")) if path.is_dir() else []
    if not folders:
        raise InputError(f"{path}: is no run, no study and no folder of runs (no config.yaml or study.yaml in it)")
    return Source(path, "runs"), folders


def _read(folder: Path, notes: list[str] | None) -> Run | None:
    """A run; one of many that cannot be read is a note instead of an error."""
    files = RunFolder(folder)
    try:
        experiment = files.experiment
        assert experiment is not None
        try:
            summary = files.summary()
        except ValueError:
            raise InputError(f"{folder / 'summary.json'} cannot be read") from None
        return Run(folder, experiment, files.records(), summary)
    except InputError as error:
        if notes is None:
            raise
        notes.append(f"{folder.name} was left out: {error}")
        return None


def _study(sources: Sequence[Source], found: dict[str, Run]) -> Study:
    """The study's own file where there is one alone; else what tells the runs apart. Its trials are the runs."""
    own = _own_study(sources)
    known = {trial.name: trial for trial in own.trials} if own else {}
    order = [name for name in known if name in found] + [name for name in found if name not in known]
    trials = [known.get(name) or Trial(found[name].experiment, found[name].experiment.settings()) for name in order]
    trials = [replace(trial, experiment=found[name].experiment) for name, trial in zip(order, trials, strict=True)]
    differing = _axes([found[name].experiment for name in order])
    if own:
        axes = [key for key in own.axes if key in differing]
        return replace(own, trials=trials, axes=axes + [key for key in differing if key not in axes])
    names = ", ".join(source.path.resolve().name for source in sources)
    baseline = {"strategy": "fedavg"}
    return Study(names, names, trials, differing, baseline, TARGETS, Plot(), None, 1.0, None, None)


def _own_study(sources: Sequence[Source]) -> Study | None:
    if len(sources) > 1 or sources[0].kind != "study":
        return None
    try:
        study = read_study(sources[0].path / "study.yaml")
    except InputError:  # say, a part of the user's own that is not importable here: the runs tell enough
        return None
    name = sources[0].path.resolve().name
    return replace(study, name=name, title=name if study.title == "study" else study.title)


def _axes(experiments: Sequence[Experiment]) -> list[str]:
    """Settings that tell runs apart. Where only some have one (alpha), it counts if those differ in it."""
    settings = [experiment.settings() for experiment in experiments]
    keys = dict.fromkeys(key for own in settings for key in own if key not in ("seed", "rounds"))
    kept = []
    for key in keys:
        values = {str(own.get(key)) for own in settings if key in PARTS or key in own}
        if len(values) > 1:
            kept.append(key)
    return kept


def _missing(sources: Sequence[Source], found: dict[str, Run]) -> list[str]:
    own = _own_study(sources)
    if own is None or own.search:
        return []
    absent = [trial for trial in own.trials if trial.name not in found]
    if not absent:
        return []
    return [
        f"{len(absent)} of the study's {len(own.trials)} trials are not there yet; the same `fedpns study` command runs them."
    ]
