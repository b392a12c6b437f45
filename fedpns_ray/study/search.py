"""A search: Optuna suggests, ASHA stops what falls behind, the best are confirmed with all seeds.

`search.csv` in the study's storage is the ledger: every suggestion that was tried and what it cost. A resumed search tells
Optuna of all of them and tries only as many more as are missing.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import optuna
import pandas as pd
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from fedpns_ray.experiment import Experiment
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.packing import Packing
from fedpns_ray.study.study_file import Search, Study
from fedpns_ray.study.trial import Terms
from fedpns_ray.study.tune import Watch, tune_trials

LEDGER = "search.csv"


@dataclass(frozen=True)
class Suggestion:
    """Settings that were tried with the first seed."""

    settings: dict[str, float]
    rounds: int
    """Where it ended: at the target, at the last round, or where the scheduler stopped it."""
    best_accuracy: float
    cost: float
    """Rounds to the target; above the number of all rounds where it was not reached."""


class Ledger:
    """All suggestions that were tried to their end."""

    def __init__(self, storage: Storage, search: Search) -> None:
        self._storage, keys = storage, list(search.space)
        content = storage.read(LEDGER)
        rows = pd.read_csv(io.BytesIO(content)).to_dict("records") if content else []
        self.suggestions = [
            Suggestion({k: float(row[k]) for k in keys}, int(row["rounds"]), row["best_accuracy"], row["cost"])
            for row in rows
            if set(keys) <= set(row)
        ]

    @property
    def ranked(self) -> list[Suggestion]:
        """The best first."""
        return sorted(self.suggestions, key=lambda suggestion: suggestion.cost)

    def add(self, suggestion: Suggestion) -> None:
        self.suggestions.append(suggestion)
        rows = [
            {**s.settings, "rounds": s.rounds, "best_accuracy": s.best_accuracy, "cost": s.cost}
            for s in self.suggestions
        ]
        self._storage.write(LEDGER, pd.DataFrame(rows).to_csv(index=False).encode())


def run_search(
    study: Study, terms: Terms, packing: Packing, watch: Watch, stop: Callable[[], bool], **options: Any
) -> list[Suggestion]:
    """The suggestions that were tried, the best first."""
    assert study.search is not None
    search, first = study.search, study.trials[0].experiment
    settings, space = first.settings(), {}
    for key, span in search.space.items():
        space[key] = tune.quniform(span.min, span.max, span.step)
    ledger = Ledger(terms.storage, search)
    own = {key: float(settings[key]) for key in space}
    tried = [suggestion.settings for suggestion in ledger.suggestions]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    searcher = OptunaSearch(
        space,
        metric="cost",
        mode="min",
        points_to_evaluate=[] if own in tried else [own],
        seed=first.seed + len(tried),  # a resumed search must not suggest the same again
    )
    for suggestion in ledger.suggestions:
        searcher.add_evaluated_point(suggestion.settings, suggestion.cost)
    left = search.trials - len(ledger.suggestions)
    watch.begin_search(len(ledger.suggestions), packing)

    def record(name: str, experiment: Experiment, last: dict[str, Any]) -> None:
        settings = experiment.settings()
        tried = {key: float(settings[key]) for key in space}
        ledger.add(Suggestion(tried, last["round"], last["best_accuracy"], last["cost"]))

    if left > 0:
        base = {key: value for key, value in settings.items() if key not in space}
        terms = replace(terms, target=search.target)
        tune_trials(
            {"experiment": base},
            terms,
            packing,
            watch,
            stop,
            on_done=record,
            **options,
            search_alg=searcher,
            scheduler=early_stopping(study),
            num_samples=left,
            max_concurrent_trials=packing.at_once,
        )
    return ledger.ranked


def early_stopping(study: Study) -> ASHAScheduler:
    """Judges trials by their cost, first at the end of the grace period."""
    return ASHAScheduler(
        time_attr="round", metric="cost", mode="min", max_t=study.trials[0].experiment.rounds, grace_period=study.grace
    )


def ranking(study: Study, suggestions: list[Suggestion], rows: pd.DataFrame) -> str:
    """How the study's own settings rank: among all suggestions on the first seed, and among the confirmed on all seeds."""
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
