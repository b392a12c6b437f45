"""A search: an algorithm suggests, a scheduler stops what falls behind, the best are confirmed with all seeds.

`search.csv` in the study's storage lists every suggestion that was tried and what it cost. A resumed search
passes all of them to its algorithm and tries only as many more as are missing.
"""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import optuna
import pandas as pd
from ray import tune
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from fedpns_ray.experiment import Experiment
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.packing import Packing
from fedpns_ray.study.search_block import Search
from fedpns_ray.study.search_names import construct, find_class
from fedpns_ray.study.study_file import Study
from fedpns_ray.study.trial import Terms, TrialReport
from fedpns_ray.study.tune import Watching, tune_trials
from fedpns_ray.study.user_search import Trap, Unrepeated, in_one_line, trapped

logger = logging.getLogger(__name__)

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
    search, base = study.search, study.trials[0].experiment.settings()
    history, trap = Suggestions(terms.storage, search), Trap()
    left = search.left(suggestion.settings for suggestion in history.all)
    watching.watch.begin_search(search.trials - left, packing)

    def record(experiment: Experiment, last: TrialReport) -> None:
        settings = experiment.all_settings()
        tried = {key: float(settings[key]) for key in search.space}
        history.add(Suggestion(tried, last.round or 0, last.best_accuracy or 0.0, last.cost))

    if left > 0:
        with in_one_line(search):
            searcher, scheduler = suggesting(study, history.all, trap), early_stopping(study, trap)
        tune_trials(
            {"experiment": {key: value for key, value in base.items() if key not in search.space}},
            replace(terms, target=search.target),
            packing,
            replace(watching, stop=lambda: watching.stop() or trap.error is not None, on_done=record),
            search_alg=searcher,
            scheduler=scheduler,
            num_samples=left,
            max_concurrent_trials=packing.at_once,
        )
        trap.release(search)
        left = search.left(suggestion.settings for suggestion in history.all)
        if left > 0 and not watching.stop():  # trials failed, or the algorithm had nothing more to suggest
            logger.warning("only %d of %d suggestions were tried", search.trials - left, search.trials)
    return history.ranked


def suggesting(study: Study, history: Sequence[Suggestion], trap: Trap) -> Searcher:
    """The search algorithm, told of all that was tried. The study's own settings come first, except in a grid."""
    assert study.search is not None
    search, first = study.search, study.trials[0].experiment
    own, space = _own(study), {}
    for key, span in search.space.items():
        space[key] = tune.quniform(span.min, span.max, span.step)
    kind, goal = find_class("algorithm", search.algorithm), {"metric": TrialReport.cost, "mode": "min"}
    if search.algorithm == "optuna":
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        points = [] if own in [suggestion.settings for suggestion in history] else [own]
        seed = first.seed + len(history)  # a resumed search must not repeat its suggestions
        searcher = kind(space, **goal, points_to_evaluate=points, seed=seed)
        for suggestion in history:
            if search.holds(suggestion.settings):
                searcher.add_evaluated_point(suggestion.settings, suggestion.cost)
        return searcher
    seeds = dict.fromkeys(("seed", "random_state", "random_state_seed"), first.seed)
    searcher = construct(kind, {"space": space, "ranges": search.space, **goal, **seeds})
    searcher.set_search_properties(TrialReport.cost, "min", space)  # no effect where the constructor has taken them
    known = {tuple(suggestion.settings.values()): suggestion.cost for suggestion in history}
    unrepeated = Unrepeated(searcher, search, known, trap)
    if search.algorithm != "grid":
        unrepeated.begin_with(tuple(own.values()))
    return unrepeated


def early_stopping(study: Study, trap: Trap) -> TrialScheduler:
    """The scheduler. It judges trials by their cost, first at the end of the grace period."""
    assert study.search is not None
    name = study.search.scheduler
    kind = find_class("scheduler", name)
    offered = {
        "time_attr": TrialReport.round,
        "metric": TrialReport.cost,
        "mode": "min",
        "max_t": study.trials[0].experiment.rounds,
        "grace_period": study.grace,
        "min_time_slice": math.inf,  # the median rule would set trials aside while it knows too few of them
    }
    scheduler = construct(trapped(kind, name, trap) if ":" in name else kind, offered)
    scheduler.set_search_properties(TrialReport.cost, "min")  # no effect where the constructor has taken them
    return scheduler


def ranking(study: Study, suggestions: list[Suggestion], rows: pd.DataFrame) -> str:
    """The rank of the study's own settings: among all suggestions on the first seed, and among the confirmed on all."""
    assert study.search is not None
    own, target = _own(study), study.search.target
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


def _own(study: Study) -> dict[str, float]:
    """The study's own settings, as a suggestion."""
    assert study.search is not None
    settings = study.trials[0].experiment.all_settings()
    return {key: float(settings[key]) for key in study.search.space}


def _named(settings: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in settings.items())


def _reached(suggestion: Suggestion, target: float) -> str:
    if suggestion.best_accuracy >= target:
        return f"{target:.0%} in {suggestion.cost:.0f} rounds"
    return f"{target:.0%} not reached in {suggestion.rounds} rounds"
