"""What a study has come to: its tables, its verdict, and the files that it leaves."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from fedpns_ray.records.storage import Storage
from fedpns_ray.reporting.tables import Results, collect, markdown, table
from fedpns_ray.reporting.verdict import verdict
from fedpns_ray.study.engine import Outcome, with_others_done
from fedpns_ray.study.search import ranking
from fedpns_ray.study.study_file import Study, Trial

LEAVES = ("report.html", "study.csv", "curves.parquet", "table.md", "curves.png")


@dataclass(frozen=True)
class StudyResult:
    """Of a study, run to its end or stopped on the way."""

    study: Study
    storage: Storage
    outcome: Outcome
    trials: list[Trial]
    """Those asked for, and others of the study that are finished."""
    results: Results

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per setting: means over seeds, intervals, the difference to the baseline."""
        return table(self.results, self.trials)

    @cached_property
    def verdict(self) -> str:
        """The answer in a sentence; for a search, how the study's own settings rank."""
        if self.outcome.suggestions and len(self.table):
            return ranking(self.study, self.outcome.suggestions, self.table)
        return verdict(self.results, self.table)

    @property
    def diverged(self) -> dict[str, int]:
        """Trials that diverged, with the round."""
        rows = self.results.trials[self.results.trials["status"] == "diverged"]
        return {str(name): int(t) for name, t in zip(rows["trial"], rows["diverged_in_round"], strict=True)}

    def _repr_html_(self) -> str:
        return f"<p>{self.verdict}</p>{self.table.to_html(index=False)}"


def concluded(study: Study, whole: Study, storage: Storage, outcome: Outcome) -> StudyResult:
    """Read every trial, and write what a study leaves: tables, curves, pictures, the page.

    `whole` is the study without the selection of trials that this command made.
    """
    from fedpns_ray.reporting.collecting import gather
    from fedpns_ray.reporting.curves import plot_study
    from fedpns_ray.reporting.page import page

    trials = with_others_done(outcome.trials, whole, storage)
    results = collect(study, trials, storage, outcome.errors)
    results.write(storage)
    found = StudyResult(study, storage, outcome, trials, results)
    if not outcome.stopped and len(found.table):
        storage.write("table.md", markdown(found.table, study).encode())
        storage.write("curves.png", plot_study(results))
        command = shlex.join(["fedpns", "report", str(storage)])
        storage.write("report.html", page(gather([storage.place]), command).encode())
    return found
