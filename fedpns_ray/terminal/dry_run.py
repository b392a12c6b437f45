"""`fedpns study --dry-run`: the trials, the resources, an estimate of the time."""

from __future__ import annotations

from rich.table import Table

from fedpns_ray.records.storage import Storage
from fedpns_ray.study.study_file import Study, Trial
from fedpns_ray.terminal.screen import console


def dry_run(study: Study, storage: Storage, address: str | None) -> int:
    """Run two rounds of each kind of trial to time them; writes nothing."""
    from fedpns_ray.progress.study_view import clock
    from fedpns_ray.runtime.memory import free, needed
    from fedpns_ray.runtime.session import machines, machines_to_come, session
    from fedpns_ray.study.engine import load_samples, missing_trials, refuse_impossible, share
    from fedpns_ray.study.estimate import estimate
    from fedpns_ray.study.packing import holds, pack

    missing = missing_trials(study.trials, storage)
    _print_trials(study, {trial.name for trial in missing})
    with session(address):
        there, coming = machines(whole=True), machines_to_come()
        packing = pack(study, there + coming)
        more = f" and {len(coming)} that may be started" if coming else ""
        console.print(
            f"{len(study.trials)} trials, {len(study.trials) - len(missing)} of them done in {storage}; "
            f"{packing.describe()}, on {len(there)} machine{'s' * (len(there) != 1)}{more}",
            soft_wrap=True,
        )
        if missing:
            actors = packing.plan.actors if packing.plan else None
            each = max((needed(trial.experiment, actors) for trial in missing), key=lambda found: found.total)
            console.print(
                f"a trial needs up to about {each.describe()}, {packing.at_once} at once "
                f"{packing.at_once * each.total / 1e9:.1f} GB; {free() / 1e9:.1f} GB are free on this machine",
                soft_wrap=True,
            )
        if missing and not holds(there, packing):
            console.print("no estimate: timing a trial would start a machine")
        elif missing:
            samples = load_samples(missing)
            refuse_impossible(missing, samples, study.search)
            seconds = estimate(missing, packing, share(samples))
            console.print(f"about {clock(seconds)}, estimated from two rounds of each kind of trial, timed just now")
    if study.search:
        console.print(f"a search: {study.search.trials} suggestions before these, {_stopped_early(study)}")
    return 0


def _stopped_early(study: Study) -> str:
    assert study.search is not None
    rounds = study.trials[0].experiment.rounds
    if study.search.scheduler == "none":
        return "none stopped early"
    if study.grace < rounds:
        return "stopped early where they fall behind"
    verb = "s are" if rounds > 1 else " is"
    return f"none stopped early: {rounds} round{verb} within the grace period of {study.search.grace}"


def _print_trials(study: Study, missing: set[str]) -> None:
    groups: dict[tuple[str, ...], list[Trial]] = {}
    for trial in study.trials:
        settings = trial.experiment.settings()
        key = tuple(str(settings.get(axis, "-")) for axis in study.axes)
        groups.setdefault((*key, str(trial.experiment.rounds)), []).append(trial)
    grid = Table(title=study.title, title_justify="left")
    for column in (*study.axes, "rounds", "seeds", "missing"):
        grid.add_column(column, justify="right" if column in ("rounds", "missing") else "left")
    for key, trials in groups.items():
        seeds = " ".join(str(trial.experiment.seed) for trial in trials)
        grid.add_row(*key, seeds, str(sum(trial.name in missing for trial in trials)))
    console.print(grid)
