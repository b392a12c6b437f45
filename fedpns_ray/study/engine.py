"""The engine of a study: plan, find out which trials are missing, run them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import ray
from ray import tune

from fedpns_ray.data import build_population
from fedpns_ray.data import load_samples as samples_of
from fedpns_ray.data.fit import check_fits
from fedpns_ray.data.interfaces import Samples
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import folder_name
from fedpns_ray.records.file_names import COMMANDS, ROUNDS, STUDY, SUMMARY, TRIALS, WEIGHTS
from fedpns_ray.records.lines import read_lines
from fedpns_ray.records.storage import Storage
from fedpns_ray.records.summary import damage, is_over, parse_summary
from fedpns_ray.runtime.layout import Machine
from fedpns_ray.runtime.lookout import guarded
from fedpns_ray.runtime.memory import refuse_too_large
from fedpns_ray.runtime.session import machines, machines_to_come, session
from fedpns_ray.study.cohort_trial import FUSED
from fedpns_ray.study.cuda_check import check_cuda
from fedpns_ray.study.fuse import cohorts_of
from fedpns_ray.study.ownership import Ownership
from fedpns_ray.study.packing import Packing, pack
from fedpns_ray.study.search import Suggestion, Suggestions, run_search
from fedpns_ray.study.search_block import Search
from fedpns_ray.study.study_file import Study, Trial
from fedpns_ray.study.trial import COHORT, Terms
from fedpns_ray.study.tune import Watching, check_seen_by_all, tune_trials

logger = logging.getLogger(__name__)

ALONE = Watching()


@dataclass
class StudyOutcome:
    """How the trials of a study ended."""

    trials: list[Trial]
    """The trials of the study; for a search, those that were confirmed."""
    errors: dict[str, str] = field(default_factory=dict)
    suggestions: list[Suggestion] = field(default_factory=list)
    stopped: bool = False


class Standing(NamedTuple):
    """The state of a trial, by the files in its folder."""

    rounds: int
    """Rounds done according to its summary; 0 if there is none."""
    over: bool
    """All rounds are done, or it diverged; and its files match the summary."""
    damage: str = ""
    """What is wrong with the files of a trial that was over."""


def standings(trials: Sequence[Trial], storage: Storage) -> list[Standing]:
    """The standing of every trial. A finished trial counts only if its records and weights match its summary."""
    names = [trial.name for trial in trials]
    contents = storage.read_each(f"{TRIALS}/{name}/{SUMMARY}" for name in names)
    summaries = [None if isinstance(content, InputError) else parse_summary(content) for content in contents]
    over = [is_over(s, trial.experiment.rounds) for s, trial in zip(summaries, trials, strict=True)]
    wanted = [name for name, is_done in zip(names, over, strict=True) if is_done]
    lines = dict(zip(wanted, storage.read_each(f"{TRIALS}/{n}/{ROUNDS}" for n in wanted), strict=True))
    weights = dict(zip(wanted, storage.read_each(f"{TRIALS}/{n}/{WEIGHTS}" for n in wanted), strict=True))
    found = []
    for name, content, summary, done in zip(names, contents, summaries, over, strict=True):
        if summary is None:
            found.append(Standing(0, False, f"{SUMMARY} cannot be read" if content is not None else ""))
        else:
            wrong = damage(summary, read_lines(lines[name]), weights[name]) if done else None
            found.append(Standing(summary.rounds, done and not wrong, wrong or ""))
    return found


def missing_trials(trials: Sequence[Trial], storage: Storage) -> list[Trial]:
    """The trials that are not over, including those that were but whose files are damaged, which are logged."""
    missing = []
    for trial, standing in zip(trials, standings(trials, storage), strict=True):
        if standing.rounds > trial.experiment.rounds:
            raise InputError(
                "rounds",
                trial.experiment.rounds,
                f"{trial.name} in {storage} has run {standing.rounds} already",
                "name a new folder",
            )
        if standing.damage:
            logger.warning(
                "%s is damaged: %s; it is repaired or run again, to the same bits", trial.name, standing.damage
            )
        if not standing.over:
            missing.append(trial)
    return missing


def standing(study: Study, storage: Storage) -> StudyOutcome:
    """The outcome of earlier commands."""
    if not study.search:
        return StudyOutcome(list(study.trials))
    suggestions = Suggestions(storage, study.search).ranked
    return StudyOutcome(study.confirmation([s.settings for s in suggestions]), suggestions=suggestions)


def run_study(
    study: Study, storage: Storage, watching: Watching = ALONE, address: str | None = None, command: str = ""
) -> StudyOutcome:
    """Run the trials that are missing, as the only owner of the storage. `command` is noted in the study's folder."""
    outcome = standing(study, storage)
    searching = study.search is not None and study.search.left(s.settings for s in outcome.suggestions) > 0
    missing = [] if searching else missing_trials(outcome.trials, storage)
    if not searching and not missing:
        return outcome
    samples = load_samples(study.trials)
    refuse_impossible(study.trials, samples, study.search)  # before Ray starts, so that a refusal is immediate
    ownership = Ownership(storage, watching.stop)
    ownership.refuse_living()
    with session(address):
        here = guarded(machines, whole=True)
        packing = pack(study, here + guarded(machines_to_come))
        logger.info("%s", started(packing, here))
        shared = guarded(share, samples)
        guarded(check_cuda, packing)
        check_seen_by_all(storage)
        with ownership:
            terms = Terms(
                storage,
                shared,
                packing.plan,
                packing.cpu_fallback,
                study.patience,
                ownership.id,
                ownership.taken_from,
            )
            storage.write(STUDY, study.text)  # from here on it is a study's folder
            if command:
                storage.add_line(COMMANDS, command)
            held = replace(watching, stop=lambda: ownership.lost or watching.stop())
            if searching:
                outcome.suggestions = run_search(study, terms, packing, held)
                outcome.trials = study.confirmation([s.settings for s in outcome.suggestions])
                missing = missing_trials(outcome.trials, storage)
            if not held.stop():
                cohorts = fused_trials(study, missing, packing, held)
                outcome.errors |= _run_trials(outcome.trials, missing, cohorts, (terms, packing), held)
            ownership.check()
    outcome.stopped = watching.stop()
    return outcome


def fused_trials(study: Study, missing: Sequence[Trial], packing: Packing, watching: Watching) -> list[list[Trial]]:
    """The missing trials that run fused, cohort by cohort.

    None of a study with a layout, which spreads a trial instead, with a search, whose trials are stopped and judged
    one by one, or with third-party loggers, which see what Tune sees.
    """
    if study.layout or study.search or watching.loggers:
        return []
    return cohorts_of(missing, study.fuse, lambda e: "GPU" in packing.bundles_of(e)[0], packing.at_once)


def _run_trials(
    trials: Sequence[Trial],
    missing: Sequence[Trial],
    cohorts: Sequence[Sequence[Trial]],
    where: tuple[Terms, Packing],
    watching: Watching,
) -> dict[str, str]:
    """Run those of the trials that are missing; returns the errors of those that failed, by name.

    Cohorts come first: what fails there is run alone.
    """
    terms, packing = where
    watching.watch.begin(trials, {trial.name for trial in trials} - {trial.name for trial in missing}, packing)
    alone = {trial.name for trial in missing}
    if cohorts:
        together = {trial.name for cohort in cohorts for trial in cohort}
        logger.info("%d trials are fused, in %d workers", len(together), len(cohorts))
        space = {COHORT: tune.grid_search([[trial.experiment.settings() for trial in some] for some in cohorts])}
        failed = tune_trials(space, terms, packing, watching, FUSED)
        alone = alone - together | failed.keys()
    left = [trial.experiment.settings() for trial in missing if trial.name in alone]
    if not left or watching.stop():
        return {}
    return tune_trials({"experiment": tune.grid_search(left)}, terms, packing, watching)


def started(packing: Packing, here: Sequence[Machine]) -> str:
    """`Ray: 2 workers on 2 cores`."""
    cores, gpus, count = sum(m.cpus for m in here), sum(m.gpus for m in here), len(here)
    devices = f"{cores:g} core{'s' * (cores != 1)}" + (f" and {gpus:g} GPU{'s' * (gpus != 1)}" if gpus else "")
    machines = f" of {count} machines" if count > 1 else ""
    return f"Ray: {packing.at_once} worker{'s' * (packing.at_once != 1)} on {devices}{machines}"


def load_samples(trials: Iterable[Trial]) -> dict[str, Samples]:
    """The data sets of the trials, by name; those that are made for their nodes are not among them."""
    examples = {trial.experiment.data_name: trial.experiment for trial in trials}
    found = {name: samples_of(experiment) for name, experiment in sorted(examples.items())}
    return {name: samples for name, samples in found.items() if samples is not None}


def share(samples: dict[str, Samples]) -> dict[str, Any]:
    """Put samples into the object store: once per machine, for all of its workers."""
    return {name: ray.put(arrays) for name, arrays in samples.items()}


def refuse_impossible(trials: Sequence[Trial], samples: dict[str, Samples], search: Search | None = None) -> None:
    """Refuse trials that do not fit their data; checked with one seed of every setting, before anything starts.

    So is a `search` for an accuracy where there is none.
    """
    seed = trials[0].experiment.seed
    settings = {folder_name(e): e for e in (trial.experiment.but(seed=seed) for trial in trials)}
    by_data: dict[str, list[Experiment]] = {}
    for e in settings.values():
        by_data.setdefault(str(e.data_settings()), []).append(e)
    for experiments in by_data.values():
        refuse_too_large(experiments[0], elsewhere=True)
        population = build_population(experiments[0], samples.get(experiments[0].data_name))
        if search and population.samples.task == "regression":
            allowed = f"dataset {experiments[0].dataset} is a regression, which has no accuracy"
            raise InputError("search.target", search.target, allowed)
        for e in experiments:
            check_fits(e, population)
