"""Finished trials run again, in another layout: a result that cannot be repeated is not a result."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedpns_ray.api import run
from fedpns_ray.errors import DivergedError, InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.file_names import CONFIG, STUDY
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.storage import Storage
from fedpns_ray.records.summary import Summary
from fedpns_ray.reporting.collecting import study_source, trial_folders
from fedpns_ray.reporting.runs import Run, read_runs
from fedpns_ray.reporting.sameness import Sameness, sameness
from fedpns_ray.runtime.layout import Layout
from fedpns_ray.study.study_file import Trial

TOLERANCE = 0.01
"""How far the final accuracies of a run may lie apart (where there is no accuracy, its last losses as a fraction) that
was made on other hardware or with other versions: there the last bits differ, and a round in which one node is excluded
may turn out otherwise."""


@dataclass(frozen=True)
class Verified:
    """One trial, run again."""

    name: str
    found: Sameness
    apart: float | None
    """The difference of the final accuracies, or of the last losses as a fraction of the first; None without either."""
    elsewhere: bool
    """Whether it was first made with other hardware, versions or code."""
    settings: str = ""
    """How its settings differ from what the study's file says; empty if they do not."""
    accuracy: bool = True
    """Whether `apart` is of accuracies: a regression has losses only."""

    @property
    def holds(self) -> bool:
        """The study's own settings, and the same bits; if made elsewhere, the same result within `TOLERANCE`."""
        if self.settings:
            return False
        return self.found.same or (self.elsewhere and self.apart is not None and abs(self.apart) <= TOLERANCE)

    def __str__(self) -> str:
        if self.settings:
            return f"{self.name}: not what {STUDY} describes: {self.settings}; run again with these, {self.found}"
        if self.found.same or not self.elsewhere or self.apart is None:
            return f"{self.name}: {self.found}"
        what, unit = ("final accuracies", "points") if self.accuracy else ("last losses", "%")
        within = f"{'within' if self.holds else 'beyond'} the tolerance of {100 * TOLERANCE:.2f} {unit}"
        return f"{self.name}: {what} are {100 * abs(self.apart):.2f} {unit} apart, {within}; {self.found}"


def verify(place: Path | str, sample: int = 3, seed: int = 7, layout: Layout | None = None) -> Iterator[Verified]:
    """Run some finished trials of a study again, or a single run, and compare the bits; one after another.

    `layout`: where they run now; None: in this process. Trials of studies run on one worker each, so that with two
    actors both the layout and the process are others.
    """
    storage = Storage(place)
    if storage.path is None:
        raise InputError("study", str(storage), problem="is in a bucket", hint="copy it to a folder first")
    if sample < 1:
        raise InputError("sample", sample, "it must be a whole number above 0")
    if not storage.path.is_dir():
        raise InputError(str(place), problem="there is no such folder")
    folders = trial_folders(storage) or [""]
    runs = [(folder, run) for folder in folders for run in read_runs(storage, [folder], []) if run.over]
    if not runs:
        raise InputError(str(place), problem="holds no finished run", hint="name a run or a study")
    chosen = np.random.default_rng(seed).choice(len(runs), size=min(sample, len(runs)), replace=False)
    path, described = storage.path, _described(storage)
    return (
        replace(_again(path / folder, run, layout), settings=_changed(run, described.get(run.name)))
        for folder, run in (runs[k] for k in sorted(chosen.tolist()))
    )


def _described(storage: Storage) -> dict[str, Trial]:
    """The trials that a study's file describes, by name; none for a single run."""
    study = study_source(storage).study if STUDY in storage.names() else None
    return {trial.name: trial for trial in study.whole} if study else {}


def _changed(run: Run, trial: Trial | None) -> str:
    """A trial's folder is named after its settings: its configuration must still be theirs."""
    if trial is None:
        return ""
    ours, theirs = run.experiment.all_settings(), trial.experiment.all_settings()
    differing = [key for key in dict.fromkeys((*ours, *theirs)) if ours.get(key) != theirs.get(key)]
    return "; ".join(f"{key} is {ours.get(key)!r} in {CONFIG}, {theirs.get(key)!r} there" for key in differing)


def _again(path: Path, before: Run, layout: Layout | None) -> Verified:
    experiment = Experiment(**before.experiment.settings())
    with tempfile.TemporaryDirectory(prefix="fedpns-verify-") as folder:
        out = Path(folder) / "run"
        try:
            now = run(experiment, out, layout=layout).summary
        except DivergedError as error:  # as it may have done before
            now = error.result.summary
        found = sameness(path, out)
        elsewhere = RunFolder(path).made_with() != RunFolder(out).made_with()
    apart, accuracy = _apart(before.summary or Summary(), now)
    return Verified(before.name, found, apart, elsewhere, accuracy=accuracy)


def _apart(before: Summary, now: Summary) -> tuple[float | None, bool]:
    """The difference, and whether it is one of accuracies."""
    if before.final_accuracy is not None and now.final_accuracy is not None:
        return now.final_accuracy - before.final_accuracy, True
    first, second = before.last_loss, now.last_loss
    return (second / first - 1 if first and second is not None else None), False
