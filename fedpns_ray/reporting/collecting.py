"""What a report shows: runs from run folders, studies and folders of runs, on this machine or in a bucket."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import folder_name
from fedpns_ray.records.file_names import COMMANDS, CONFIG, STUDY, TRIALS
from fedpns_ray.records.storage import Storage
from fedpns_ray.registry import KINDS
from fedpns_ray.reporting.runs import Run, read_runs
from fedpns_ray.reporting.standing import Asked, asked_for, label
from fedpns_ray.reporting.tables import Results, tabulate
from fedpns_ray.study.study_file import Plot, Study, Trial, read_study
from fedpns_ray.yaml_file import parse_yaml

TARGETS = [0.8, 0.9]


@dataclass(frozen=True)
class Source:
    """A folder that the user named, or the URI of one."""

    place: str
    kind: str
    """run, study or runs."""
    study: Study | None = None
    """As the study's file describes it; None where that cannot be read here."""
    study_file: str = ""
    """The text of the study's file."""
    commands: tuple[str, ...] = ()
    """The commands that ran the study."""

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
    """The number of runs to expect: the trials of a study that were asked for, or the runs that are there."""
    label: str = ""
    """Shown above tables and pictures: that the study is partial, or what was selected from it."""
    left_out: tuple[str, ...] = ()
    """The notes about folders that cannot be read."""

    @property
    def trials(self) -> list[Trial]:
        return self.study.trials

    @cached_property
    def results(self) -> Results:
        found = tabulate(self.study, list(zip(self.trials, self.runs, strict=True)), {})
        return replace(found, label=self.label)


def gather(places: Sequence[str | Path]) -> Gathered:
    """Every run in these folders, each experiment once. If they hold none, an InputError is raised."""
    notes: list[str] = []
    found = [_from(Storage(place), notes) for place in places]
    return gathered([source for source, _ in found], [run for _, runs in found for run in runs], notes)


def gathered(sources: Sequence[Source], runs: Sequence[Run], notes: list[str]) -> Gathered:
    """Like `gather`, for runs that have already been read."""
    found: dict[str, Run] = {}
    left_out = tuple(notes)
    for run in runs:
        name = folder_name(run.experiment)
        if name not in found or len(run.records) > len(found[name].records):
            found[name] = run
    if not found:
        why = f"holds no run that can be read: {notes[0]}" if notes else f"holds no run yet (nothing with a {CONFIG})"
        raise InputError(sources[0].place, problem=why)
    if twice := len(runs) - len(found):
        which = "folders hold experiments" if twice > 1 else "folder holds an experiment"
        notes.append(f"{twice} {which} that another folder also holds; each is shown once, by its longest run.")
    own = sources[0].study if len(sources) == 1 else None
    requested = asked_for(own, sources[0].commands) if own else Asked([], [], "")
    known = _matched(requested.whole, found)
    study = _study(own, ", ".join(source.name for source in sources), found, known)
    shown = [found[trial.name] for trial in study.trials]
    matched = known if own and not own.search else {}
    wanted = {trial.name for trial in requested.trials}
    asked = {name for name, trial in matched.items() if trial.name in wanted} if matched else set(found)
    notes = [*notes, *_not_counted(shown), *_missing(asked, found)]
    over = [name for name, run in found.items() if run.over]
    noun = "trials" if own else "runs"
    standing = "" if own and own.search else label(asked, over, matched, requested.selection, noun)
    return Gathered(study, shown, list(sources), notes, len({*asked, *found}), standing, left_out)


def _not_counted(runs: Sequence[Run]) -> list[str]:
    """Notes on what tables and statistics leave out."""
    notes = []
    unfinished, diverged = sum(not run.over for run in runs), sum(run.diverged for run in runs)
    if unfinished:
        verb = "are" if unfinished > 1 else "is"
        shown = "shown up to their last round, but not counted in tables and statistics"
        notes.append(f"{unfinished} of {len(runs)} runs {verb} not finished: {shown}.")
    if diverged:
        notes.append(f"{diverged} of {len(runs)} runs diverged: they are counted in the table, but not in its means.")
    lost = sum((run.summary.non_finite_updates or 0) for run in runs if run.summary)
    if lost:
        notes.append(f"{lost} updates were not finite and were left out of their rounds.")
    return notes


def _from(storage: Storage, notes: list[str]) -> tuple[Source, list[Run]]:
    if storage.path and not os.path.lexists(storage.path):
        raise InputError(storage.place, problem="there is no such folder")
    there = storage.names() if not storage.path or storage.path.is_dir() else []
    if CONFIG in there:
        return Source(str(storage), "run"), read_runs(storage, [""])
    if STUDY in there:
        return study_source(storage), read_runs(storage, trial_folders(storage), notes)
    runs = read_runs(storage, there, notes)
    if not runs and not notes:
        raise InputError(
            str(storage), problem=f"holds no run, no study and no folder of runs (no {CONFIG} or {STUDY} in it)"
        )
    return Source(str(storage), "runs"), runs


def trial_folders(storage: Storage) -> list[str]:
    return [f"{TRIALS}/{name}" for name in storage.names(TRIALS)]


def study_source(storage: Storage) -> Source:
    """A study, as its storage describes it."""
    content, commands = (b"" if isinstance(c, InputError) else c or b"" for c in storage.read_each([STUDY, COMMANDS]))
    text = content.decode(errors="replace")
    source = Source(str(storage), "study", None, text, tuple(commands.decode(errors="replace").splitlines()))
    try:
        study = read_study(parse_yaml(content), importing=False)
    except InputError:  # the runs say enough
        return source
    title = source.name if study.title == "study" else study.title
    return replace(source, study=replace(study, name=source.name, title=title))


def _study(own: Study | None, name: str, found: dict[str, Run], known: dict[str, Trial]) -> Study:
    """The study to show: its own file, or what distinguishes the runs of several sources. Its trials are the runs."""
    order = [name for name in known if name in found] + [name for name in found if name not in known]
    trials = [known.get(name) or Trial(found[name].experiment, found[name].experiment.settings()) for name in order]
    trials = [replace(trial, experiment=found[name].experiment) for name, trial in zip(order, trials, strict=True)]
    differing = _axes([found[name].experiment for name in order])
    if own:
        axes = [key for key in own.axes if key in differing]
        return replace(own, trials=trials, axes=axes + [key for key in differing if key not in axes])
    return Study(name, name, trials, differing, {"strategy": "fedavg"}, TARGETS, Plot(), None, 1.0, None, None)


def _matched(trials: Sequence[Trial], found: dict[str, Run]) -> dict[str, Trial]:
    """A study's trials by the names of their runs; those without a run keep their own names.

    User-defined parts are not imported, so a trial with one knows neither its parameters nor its name: its run is the
    one that it agrees with.
    """
    matched: dict[str, Trial] = {}
    for trial in trials:
        name = trial.name
        if name not in found and not trial.experiment.imported:
            agreeing = (run for run, it in found.items() if _agree(trial, it.experiment))
            name = next(agreeing, name)
        matched[name] = trial
    return matched


def _agree(trial: Trial, experiment: Experiment) -> bool:
    return trial.experiment.agrees_with(experiment, trial.settings)


def _axes(experiments: Sequence[Experiment]) -> list[str]:
    """Settings that distinguish runs. Where only some have a setting (alpha), it counts if those differ in it."""
    settings = [experiment.settings() for experiment in experiments]
    whole = [experiment.all_settings() for experiment in experiments]  # an option that is off has a value, too
    keys = dict.fromkeys(key for own in settings for key in own if key not in ("seed", "rounds"))
    kept = []
    for key in keys:
        values = {str(own.get(key)) for own in settings} if key in KINDS else {str(a[key]) for a in whole if key in a}
        if len(values) > 1:
            kept.append(key)
    return [key for key in kept if key in KINDS or not _follows(key, whole)]


def _follows(key: str, whole: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a setting that only some runs have follows from their strategy, as FedAdam's `server.lr` does."""
    values: dict[str, set[str]] = {}
    for own in whole:
        if key in own:
            values.setdefault(str(own.get("strategy")), set()).add(str(own[key]))
    return sum(key in own for own in whole) < len(whole) and all(len(some) == 1 for some in values.values())


def _missing(asked: set[str], found: dict[str, Run]) -> list[str]:
    absent = len(asked - set(found))
    if not absent:
        return []
    return [f"{absent} of the study's {len(asked)} trials have not run yet; the same `fedpns study` command runs them."]
