"""A study, run: plan, look what is done, run what is missing, collect."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray
from ray import tune

from fedpns_ray.data import DATA_SETTINGS, build_population
from fedpns_ray.data.fit import check_fits
from fedpns_ray.data.sources import IMAGES, Samples, load
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment, folder_name
from fedpns_ray.records.storage import COMMANDS, Storage
from fedpns_ray.records.summary import damage, is_over, parse_summary
from fedpns_ray.runtime.layout import Machine
from fedpns_ray.runtime.lookout import guarded
from fedpns_ray.runtime.session import machines, machines_to_come, session
from fedpns_ray.study.cuda_check import check_cuda
from fedpns_ray.study.packing import Packing, pack
from fedpns_ray.study.search import Ledger, Suggestion, run_search
from fedpns_ray.study.study_file import Study, Trial
from fedpns_ray.study.trial import Terms
from fedpns_ray.study.tune import Watch, check_seen_by_all, tune_trials


@dataclass
class Outcome:
    """What became of a study."""

    trials: list[Trial]
    """Those asked for; for a search, those that were confirmed."""
    errors: dict[str, str] = field(default_factory=dict)
    suggestions: list[Suggestion] = field(default_factory=list)
    stopped: bool = False


class Standing(NamedTuple):
    """How far a trial has come, by the files in its folder."""

    rounds: int
    """As its summary says; 0 if there is none."""
    over: bool
    """All rounds are done, or it diverged; and its files are as the summary says."""
    damage: str = ""
    """What is wrong with the files of a trial that was over."""


def standings(trials: Sequence[Trial], storage: Storage) -> list[Standing]:
    """Every trial by its folder. A finished trial counts only if its records and weights are those it finished with."""
    names = [trial.name for trial in trials]
    contents = storage.read_all(f"trials/{name}/summary.json" for name in names)
    summaries = [parse_summary(content) for content in contents]
    over = [is_over(s, trial.experiment.rounds) for s, trial in zip(summaries, trials, strict=True)]
    wanted = [name for name, is_done in zip(names, over, strict=True) if is_done]
    lines = dict(zip(wanted, storage.read_all(f"trials/{n}/rounds.jsonl" for n in wanted), strict=True))
    weights = dict(zip(wanted, storage.read_all(f"trials/{n}/weights.safetensors" for n in wanted), strict=True))
    found = []
    for name, content, summary, done in zip(names, contents, summaries, over, strict=True):
        if summary is None:
            found.append(Standing(0, False, "summary.json cannot be read" if content else ""))
        else:
            wrong = damage(summary, lines[name], weights[name]) if done else None
            found.append(Standing(summary["rounds"], done and not wrong, wrong or ""))
    return found


def missing_trials(
    trials: Sequence[Trial], storage: Storage, note: Callable[[str], None] = lambda message: None
) -> list[Trial]:
    """Those that are not over. `note` hears of trials that were, and whose files are damaged since."""
    missing = []
    for trial, standing in zip(trials, standings(trials, storage), strict=True):
        if standing.rounds > trial.experiment.rounds:
            raise InputError(
                f"rounds: {trial.experiment.rounds} is not allowed; {trial.name} in {storage} has run "
                f"{standing.rounds} already; name a new folder"
            )
        if standing.damage:
            note(f"{trial.name} is damaged: {standing.damage}; it is mended or run again, to the same bits")
        if not standing.over:
            missing.append(trial)
    return missing


def standing(study: Study, storage: Storage) -> Outcome:
    """What an earlier command has left to look at."""
    if not study.search:
        return Outcome(list(study.trials))
    suggestions = Ledger(storage, study.search).ranked
    return Outcome(study.confirmation([s.settings for s in suggestions]), suggestions=suggestions)


def run_study(
    study: Study,
    storage: Storage,
    watch: Watch,
    stop: Callable[[], bool] = lambda: False,
    address: str | None = None,
    command: str = "",
    **options: Any,
) -> Outcome:
    """Run what is missing. `command` is noted in the study's folder; `options` go to Tune: verbose, loggers."""
    outcome = standing(study, storage)
    tried = not study.search or len(outcome.suggestions) >= study.search.trials
    if tried and not missing_trials(outcome.trials, storage):
        return outcome
    samples = load_samples(study.trials)
    refuse_impossible(study.trials, samples)  # before Ray is started: a refusal takes no time
    if not (ray.is_initialized() or address or os.environ.get("RAY_ADDRESS")):
        watch.note("starting Ray …")
    with session(address):
        here = guarded(machines, whole=True)
        packing = pack(study, here + guarded(machines_to_come))
        watch.note(started(packing, here))
        terms = Terms(storage, guarded(share, samples), packing.plan, packing.cpu_fallback)
        guarded(check_cuda, packing)
        check_seen_by_all(storage)
        storage.write("study.yaml", study.text)  # from here on it is a study's folder
        if command:
            storage.add_line(COMMANDS, command)

        def grid(trials: Sequence[Trial]) -> None:
            missing = missing_trials(trials, storage, watch.note)
            done = {trial.name for trial in trials} - {trial.name for trial in missing}
            watch.begin(trials, done, packing)
            if missing:
                space = {"experiment": tune.grid_search([trial.experiment.settings() for trial in missing])}
                outcome.errors |= tune_trials(space, terms, packing, watch, stop, **options)

        if study.search:
            outcome.suggestions = run_search(study, terms, packing, watch, stop, **options)
            outcome.trials = study.confirmation([s.settings for s in outcome.suggestions])
        if not stop():
            grid(outcome.trials)
    outcome.stopped = stop()
    return outcome


def started(packing: Packing, here: Sequence[Machine]) -> str:
    """`Ray: 2 workers on 2 cores`."""
    cores, gpus, count = sum(m.cpus for m in here), sum(m.gpus for m in here), len(here)
    devices = f"{cores:g} core{'s' * (cores != 1)}" + (f" and {gpus:g} GPU{'s' * (gpus != 1)}" if gpus else "")
    machines = f" of {count} machines" if count > 1 else ""
    return f"Ray: {packing.at_once} worker{'s' * (packing.at_once != 1)} on {devices}{machines}"


def load_samples(trials: Iterable[Trial]) -> dict[str, Samples]:
    """Every data set of the trials."""
    return {name: load(name) for name in sorted({trial.experiment.dataset for trial in trials} & set(IMAGES))}


def share(samples: dict[str, Samples]) -> dict[str, Any]:
    """In the object store: once a machine, for all of its workers."""
    return {name: ray.put(arrays) for name, arrays in samples.items()}


def refuse_impossible(trials: Sequence[Trial], samples: dict[str, Samples]) -> None:
    """What only the data can tell, tried with one seed of every setting before anything starts."""
    seed = trials[0].experiment.seed
    settings = {folder_name(e): e for e in (trial.experiment.but(seed=seed) for trial in trials)}
    by_data: dict[tuple[Any, ...], list[Experiment]] = {}
    for e in settings.values():
        by_data.setdefault(tuple(getattr(e, name) for name in DATA_SETTINGS), []).append(e)
    for experiments in by_data.values():
        population = build_population(experiments[0], samples.get(experiments[0].dataset))
        for e in experiments:
            check_fits(e, population)


def with_others_done(asked: Sequence[Trial], whole: Study, storage: Storage) -> list[Trial]:
    """The trials asked for and, from an earlier command, others of the whole study that are finished; in its order."""
    names, there = {trial.name for trial in asked}, set(storage.names("trials"))
    others = [trial for trial in whole.trials if trial.name in there and trial.name not in names]
    names |= {trial.name for trial, standing in zip(others, standings(others, storage), strict=True) if standing.over}
    ordered = [trial for trial in whole.trials if trial.name in names]
    return [*ordered, *(trial for trial in asked if trial not in ordered)]
