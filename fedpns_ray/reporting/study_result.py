"""The result of a study: its tables, its verdict, and the files that it leaves."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from fedpns_ray.records.storage import Storage
from fedpns_ray.reporting.collecting import gathered, study_source, trial_folders
from fedpns_ray.reporting.formatting import markdown
from fedpns_ray.reporting.judgement import Judged, judged, table_of
from fedpns_ray.reporting.ranking import ranked
from fedpns_ray.reporting.report_card import card_markdown, report_card
from fedpns_ray.reporting.runs import Run, read_runs
from fedpns_ray.reporting.standing import label
from fedpns_ray.reporting.tables import Results, table, tabulate
from fedpns_ray.reporting.verdict import verdict
from fedpns_ray.study.engine import StudyOutcome
from fedpns_ray.study.search import ranking
from fedpns_ray.study.study_file import Study, Trial

TABLES = ("study.csv", "curves.parquet")
LEAVES = ("report.html", *TABLES, "table.md", "curves.png")
"""What a study with finished trials leaves; without any, it leaves its tables."""


@dataclass(frozen=True)
class StudyResult:
    """The result of a study that ran to its end or was stopped on the way."""

    study: Study
    storage: Storage
    outcome: StudyOutcome
    trials: list[Trial]
    """The trials asked for, and others of the study that are finished."""
    results: Results

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per setting: means over seeds, intervals, the difference from the baseline."""
        return table(self.results, self.trials)

    @cached_property
    def verdict(self) -> str:
        """The answer in one sentence; for a search, how the study's own settings rank."""
        if self.outcome.suggestions and len(self.table):
            return ranking(self.study, self.outcome.suggestions, self.table)
        return verdict(self.results, self.table)

    @cached_property
    def claims(self) -> list[Judged]:
        """What became of the claims that the study file states."""
        return judged(self.results)

    @property
    def diverged(self) -> dict[str, int]:
        """The trials that diverged, with the round."""
        rows = self.results.trials[self.results.trials["status"] == "diverged"]
        return {str(name): int(t) for name, t in zip(rows["trial"], rows["diverged_in_round"], strict=True)}

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.verdict)}</p>{self.table.to_html(index=False)}"


def concluded(study: Study, storage: Storage, outcome: StudyOutcome) -> StudyResult:
    """Read every trial once, and write what a study leaves: tables, curves, pictures, the page.

    A study that was stopped leaves them, too, labelled partial: what an earlier command left would be out of date, and
    it may never be resumed.
    """
    from fedpns_ray.reporting.curves import plot_study
    from fedpns_ray.reporting.page import page

    notes: list[str] = []
    runs = read_runs(storage, trial_folders(storage), notes)
    by_name = {run.name: run for run in runs}
    trials = with_others_done(outcome.trials, study.whole, by_name)
    results = tabulate(study, [(trial, by_name.get(trial.name)) for trial in trials], outcome.errors)
    results = replace(results, label=_label(study, outcome, [name for name, run in by_name.items() if run.over]))
    results.write(storage)
    found = StudyResult(study, storage, outcome, trials, results)
    if found.claims:
        storage.write("claims.csv", table_of(found.claims).to_csv(index=False).encode())
    if len(found.table):
        own = card_markdown(report_card(results.trials, study.axes), study.axes)
        storage.write("table.md", (markdown(ranked(found.table, results), results) + own).encode())
        storage.write("curves.png", plot_study(results))
        command = shlex.join(["fedpns", "report", str(storage)])
        shown = replace(gathered([study_source(storage)], runs, notes), label=results.label)
        storage.write("report.html", page(shown, command).encode())
    return found


def _label(study: Study, outcome: StudyOutcome, over: Sequence[str]) -> str:
    asked, whole = [trial.name for trial in outcome.trials], [trial.name for trial in study.whole]
    return label(asked, [name for name in over if name in {*asked, *whole}], whole, study.selection, "trials")


def with_others_done(asked: list[Trial], whole: list[Trial], runs: dict[str, Run]) -> list[Trial]:
    """The trials asked for and, from an earlier command, others of the whole study that are over; in its order."""
    names = {trial.name for trial in asked}
    names |= {trial.name for trial in whole if trial.name in runs and runs[trial.name].over}
    ordered = [trial for trial in whole if trial.name in names]
    return [*ordered, *(trial for trial in asked if trial not in ordered)]
