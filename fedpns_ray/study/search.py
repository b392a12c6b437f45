"""A search: Optuna suggests, ASHA stops what falls behind, the best are confirmed with all seeds.

`search.csv` in the study's storage lists every suggestion that was tried and what it cost. A resumed search
passes all of them to Optuna and tries only as many more as are missing.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, fields, replace

import optuna
import pandas as pd
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from fedpns_ray.experiment import Experiment
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.packing import Packing
from fedpns_ray.study.study_file import Search, Study
from fedpns_ray.study.trial import Terms, TrialReport
from fedpns_ray.study.tune import Watching, tune_trials

FILE = "search.csv"


@dataclass(frozen=True)
class Suggestion:
    """Settings that were tried with the first seed."""

    settings: dict[str, float]
    rounds: int
    """The round in which it ended: at the target, at the last round, or where the scheduler stopped it."""
    best_accuracy: float
    cost: float
    """Rounds to the target; more than the total number of rounds if it was not reached."""


COLUMNS = tuple(field.name for field in fields(Suggestion) if field.name != "settings")


class Suggestions:
    """All suggestions whose trial is over."""

    def __init__(self, storage: Storage, search: Search) -> None:
        self._storage, keys = storage, list(search.space)
        content = storage.read(FILE)
        rows = pd.read_csv(io.BytesIO(content)).to_dict("records") if content else []
        self.all = [
            Suggestion({key: float(row[key]) for key in keys}, *(row[column] for column in COLUMNS))
            for row in rows
            if set(keys) <= set(row)
        ]

    @property
    def ranked(self) -> list[Suggestion]:
        """The best first."""
        return sorted(self.all, key=lambda suggestion: suggestion.cost)

    def add(self, suggestion: Suggestion) -> None:
        self.all.append(suggestion)
        rows = [s.settings | {column: getattr(s, column) for column in COLUMNS} for s in self.all]
        self._storage.write(FILE, pd.DataFrame(rows).to_csv(index=False).encode())


def run_search(study: Study, terms: Terms, packing: Packing, watching: Watching) -> list[Suggestion]:
    """Try the suggestions that are missing; returns all that were tried, the best first."""
    assert study.search is not None
    search, first = study.search, study.trials[0].experiment
    settings, space = first.settings(), {}
    for key, span in search.space.items():
        space[key] = tune.quniform(span.min, span.max, span.step)
    history = Suggestions(terms.storage, search)
    own = {key: float(settings[key]) for key in space}
    tried = [suggestion.settings for suggestion in history.all]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    searcher = OptunaSearch(
        space,
        metric="cost",
        mode="min",
        points_to_evaluate=[] if own in tried else [own],
        seed=first.seed + len(tried),  # a resumed search must not repeat its suggestions
    )
    for suggestion in history.all:
        searcher.add_evaluated_point(suggestion.settings, suggestion.cost)
    left = search.trials - len(history.all)
    watching.watch.begin_search(len(history.all), packing)

    def record(experiment: Experiment, last: TrialReport) -> None:
        settings = experiment.settings()
        tried = {key: float(settings[key]) for key in space}
        history.add(Suggestion(tried, last.round or 0, last.best_accuracy or 0.0, last.cost))

    if left > 0:
        base = {key: value for key, value in settings.items() if key not in space}
        terms = replace(terms, target=search.target)
        tune_trials(
            {"experiment": base},
            terms,
            packing,
            watching,
            on_done=record,
            search_alg=searcher,
            scheduler=early_stopping(study),
            num_samples=left,
            max_concurrent_trials=packing.at_once,
        )
    return history.ranked


def early_stopping(study: Study) -> ASHAScheduler:
    """Judges trials by their cost, first at the end of the grace period."""
    return ASHAScheduler(
        time_attr="round", metric="cost", mode="min", max_t=study.trials[0].experiment.rounds, grace_period=study.grace
    )


def ranking(study: Study, suggestions: list[Suggestion], rows: pd.DataFrame) -> str:
    """The rank of the study's own settings: among all suggestions on the first seed, and among the confirmed on all."""
    assert study.search is not None
    settings, target = study.trials[0].experiment.settings(), study.search.target
    own = {key: float(settings[key]) for key in study.search.space}
    tried = [suggestion.settings for suggestion in suggestions]
    sentences = []
    if own in tried:
        rank = tried.index(own)
        sentences.append(
            f"The study's own settings ({_named(own)}) rank {rank + 1} of {len(tried)} suggestions on seed "
            f"{study.trials[0].experiment.seed}: {_reached(suggestions[rank], target)}; "
            f"the best ({_named(tried[0])}): {_reached(suggestions[0], target)}."
        )
    confirmed = rows.assign(missed=rows["seeds"] - rows[f"reached_{target:g}"])
    confirmed = confirmed.sort_values(["missed", f"rounds_to_{target:g}"], kind="stable").reset_index(drop=True)
    mine = confirmed.index[(confirmed[list(own)].astype(float) == pd.Series(own)).all(axis=1)]
    if len(mine) and confirmed[f"reached_{target:g}"].any():
        sentences.append(
            f"With {confirmed['seeds'].max()} seeds they rank {mine[0] + 1} of the {len(confirmed)} confirmed, by the "
            f"mean number of rounds to {target:.0%}."
        )
    return " ".join(sentences)


def _named(settings: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in settings.items())


def _reached(suggestion: Suggestion, target: float) -> str:
    if suggestion.best_accuracy >= target:
        return f"{target:.0%} in {suggestion.cost:.0f} rounds"
    return f"{target:.0%} not reached in {suggestion.rounds} rounds"
