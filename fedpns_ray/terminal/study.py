"""`fedpns study`: parses, prints, exits."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from fedpns_ray.errors import InputError
from fedpns_ray.study.study_file import Study, Trial, read_study

EXAMPLES = """examples:
  fedpns study tune/fig1.yaml                                    Figure 1 of the paper, into runs/fig1
  fedpns study tune/fig3.yaml --dry-run                          the trials, the resources, an estimate of the time
  fedpns study tune/fig3.yaml --only model=mlr --only sigma=0.2,0.3
  fedpns study tune/fig5.yaml --seeds 1-2 --rounds 20 --out /tmp/quick
  fedpns study tune/grid.yaml --address auto --out s3://bucket/grid
  fedpns study tune/grid.yaml --submit http://127.0.0.1:8265 --out s3://bucket/grid      sent to a cluster, see cluster/
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", type=Path, metavar="STUDY", help="a study file, such as tune/fig1.yaml")
    parser.add_argument(
        "--out", metavar="DIR", help="a folder or a URI that all machines see (default: runs/NAME of the study file)"
    )
    parser.add_argument("--seeds", help="instead of the file's, such as 1-5 or 1,3,7")
    parser.add_argument("--rounds", metavar="N", help="instead of the file's")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting that wins over the file's"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="KEY=VALUE,…", help="run only trials with one of these values"
    )
    parser.add_argument(
        "--resume", action="store_true", help="refuse to begin anew: DIR must hold the study (it is resumed anyway)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print trials, resources and an estimate; run nothing")
    parser.add_argument(
        "--address", help="join the Ray cluster there (auto: the one on this machine; default: RAY_ADDRESS)"
    )
    parser.add_argument(
        "--submit",
        metavar="URL",
        help="send this folder and the study to the cluster whose dashboard is there; follow it, fetch its report and tables to runs/NAME",
    )
    parser.add_argument(
        "--cpu-fallback",
        action="store_true",
        help="train on the CPU where a trial is given a GPU that torch cannot use; otherwise that is refused",
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON, and nothing else")
    parser.add_argument("--verbose", action="store_true", help="Ray Tune's own log instead of the live table")
    parser.add_argument("--mlflow", metavar="URI", help="also log to this MLflow folder, database or tracking server")
    parser.add_argument("--wandb", metavar="PROJECT", help="also log to this Weights & Biases project")


class Screen(NamedTuple):
    """Where a command speaks, and how it is told to stop."""

    console: Console
    messages: Console
    stop_on_signal: Callable[[], Any]


def study_command(options: argparse.Namespace, screen: Screen) -> int:
    from fedpns_ray.records.storage import Storage

    changes = pairs(options.set, "set") | ({"rounds": options.rounds} if options.rounds else {})
    whole = read_study(options.study, changes)
    study = only(read_study(options.study, changes, options.seeds) if options.seeds else whole, options.only)
    if options.cpu_fallback:
        study = replace(study, cpu_fallback=True, layout=study.layout and replace(study.layout, cpu_fallback=True))
    if options.submit:
        return _submit(study, options, screen)
    storage = Storage(options.out or Path("runs") / study.name)
    storage.check()
    if options.resume and "study.yaml" not in storage.names():
        raise InputError(f"resume: {storage} holds no study to go on with")
    if options.dry_run:
        return _dry_run(study, storage, options, screen.console)
    return _run(whole, study, storage, options, screen)


def pairs(texts: Sequence[str], field: str) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{field}: {text!r} is not allowed; it must be like key=value")
        found[key.strip().replace("-", "_")] = value
    return found


def only(study: Study, texts: Sequence[str]) -> Study:
    """The study with those trials alone that have one of the values."""
    trials = study.trials
    for key, values in pairs(texts, "only").items():
        wanted = [value.strip() for value in values.split(",")]
        there = {_as_text(trial.experiment.settings().get(key)) for trial in trials}
        trials = [t for t in trials if _as_text(t.experiment.settings().get(key)) in map(_as_text, wanted)]
        if not trials:
            raise InputError(f"only: no trial has {key} {values}; there are {', '.join(sorted(there))}")
    return replace(study, trials=trials)


def _as_text(value: Any) -> str:
    """1, 1.0 and "1" are the same."""
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def _submit(study: Study, options: argparse.Namespace, screen: Screen) -> int:
    from fedpns_ray.study.submission import Submission

    console, messages = screen.console, screen.messages
    out, here = options.out or "", Path("runs") / study.name
    for field, given in (("address", options.address), ("json", options.json)):
        if given:
            raise InputError(f"{field}: {given} is not allowed beside --submit")
    if "://" not in out and not Path(out).is_absolute():
        raise InputError(
            f"out: {out or 'nothing'} is not allowed beside --submit; it must be a URI such as s3://bucket/study, or the "
            "whole path of a folder that all machines of the cluster share"
        )
    if options.study.is_absolute() or ".." in options.study.parts:
        raise InputError(f"study: {options.study} is not allowed beside --submit; it must lie in this folder")
    if (here / "trials").exists():
        raise InputError(f"submit: {here} holds a study of this machine, where the cluster's tables would go; move it")
    submission = Submission(options.submit, _arguments(options), options.study, out)
    job = submission.start(lambda text: messages.print(text, soft_wrap=True))
    try:
        code = submission.follow(job, lambda text: console.print(text, end="", soft_wrap=True))
    except KeyboardInterrupt:
        messages.print(f"no longer followed; it keeps running there (to stop it: ray job stop {job})", soft_wrap=True)
        return 130
    if code in (0, 1, 3) and not options.dry_run:
        names = submission.fetch(here)
        console.print(f"{', '.join(names)} fetched to {here}; trials are in {out.rpartition('@')[2]}", soft_wrap=True)
    return code


def _arguments(options: argparse.Namespace) -> list[str]:
    """The same command, without --submit."""
    arguments = [str(options.study)]
    for name in ("out", "seeds", "rounds", "mlflow", "wandb"):
        if value := getattr(options, name):
            arguments += [f"--{name}", value]
    for name in ("set", "only"):
        for value in getattr(options, name):
            arguments += [f"--{name}", value]
    return arguments + [
        f"--{name.replace('_', '-')}"
        for name in ("resume", "dry_run", "verbose", "cpu_fallback")
        if getattr(options, name)
    ]


def noted_command(options: argparse.Namespace, storage: Any) -> str:
    """The same command as the study's folder may show it: without the keys that an address can carry."""
    from fedpns_ray.study.loggers import without_credentials

    shown = {options.out: str(storage), options.mlflow: without_credentials(options.mlflow or "")}
    return shlex.join(["fedpns", "study", *(shown.get(word, word) for word in _arguments(options))])


def _dry_run(study: Study, storage: Any, options: argparse.Namespace, console: Console) -> int:
    from fedpns_ray.runtime.session import machines, machines_to_come, session
    from fedpns_ray.study.engine import load_samples, missing_trials, refuse_impossible, share
    from fedpns_ray.study.estimate import estimate
    from fedpns_ray.study.packing import holds, pack
    from fedpns_ray.terminal.study_view import clock

    missing = missing_trials(study.trials, storage)
    _print_trials(study, {trial.name for trial in missing}, console)
    with session(options.address):
        there, coming = machines(whole=True), machines_to_come()
        packing = pack(study, there + coming)
        more = f" and {len(coming)} that may be started" if coming else ""
        console.print(
            f"{len(study.trials)} trials, {len(study.trials) - len(missing)} of them done in {storage}; "
            f"{packing.describe()}, on {len(there)} machine{'s' * (len(there) != 1)}{more}",
            soft_wrap=True,
        )
        if missing and not holds(there, packing):
            console.print("no estimate: it would start a machine")
        elif missing:
            samples = load_samples(missing)
            refuse_impossible(missing, samples)
            seconds = estimate(missing, packing, share(samples))
            console.print(f"about {clock(seconds)}, by two rounds of each kind of trial timed just now")
    if study.search:
        console.print(f"a search: {study.search.trials} suggestions before these, {_stopped_early(study)}")
    return 0


def _stopped_early(study: Study) -> str:
    assert study.search is not None
    rounds = study.trials[0].experiment.rounds
    if study.grace < rounds:
        return "stopped early where they fall behind"
    return (
        f"none stopped early: {rounds} round{'s are' if rounds > 1 else ' is'} within the grace of {study.search.grace}"
    )


def _print_trials(study: Study, missing: set[str], console: Console) -> None:
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


def _run(whole: Study, study: Study, storage: Any, options: argparse.Namespace, screen: Screen) -> int:
    from fedpns_ray.study.loggers import loggers

    extra = loggers(study.name, storage, options.mlflow, options.wandb)
    told = {"command": noted_command(options, storage), "verbose": options.verbose, "loggers": extra}
    return show_study(whole, study, storage, options, screen, **told)


def show_study(
    whole: Study, study: Study, storage: Any, options: argparse.Namespace, screen: Screen, **told: Any
) -> int:
    """Run a study with a live view; print its table and its verdict, and where its page is."""
    from fedpns_ray.api import run_study
    from fedpns_ray.reporting.study_result import LEAVES
    from fedpns_ray.terminal.study_view import StudyView

    console, messages = screen.console, screen.messages
    quiet = options.json or told.get("verbose", False)
    with screen.stop_on_signal() as stop, StudyView(messages, study, quiet) as view:
        where = {"address": options.address, **told}
        found = run_study(study, storage.place, whole=whole, watch=view, stop=stop, **where)
    if found.outcome.stopped:
        messages.print(f"stopped; the same command resumes from {storage}", soft_wrap=True)
        return 130
    if options.json:
        print(json.dumps(json.loads(found.table.to_json(orient="records"))))
    elif len(found.table):
        _print_table(found.table, study, console)
    for name, error in found.outcome.errors.items():
        messages.print(f"failed: {name}: {error}", soft_wrap=True)
    for name, round in found.diverged.items():
        messages.print(f"diverged in round {round}: {name}", soft_wrap=True)
    if not options.json:
        if found.verdict:
            console.print(found.verdict, soft_wrap=True)
        console.print(f"{', '.join(LEAVES)} and trials written to {storage}", soft_wrap=True)
        console.print(f"open {str(storage).rstrip('/')}/report.html", soft_wrap=True)
    return 1 if found.outcome.errors else 3 if found.diverged else 0


def _print_table(rows: Any, study: Study, console: Console) -> None:
    from fedpns_ray.reporting.tables import formatted

    header, body = formatted(rows, study)
    title = "mean over seeds ± half its 95 % interval; final: mean of the last 5 rounds; accuracies in %"
    grid = Table(title=title, title_justify="left")
    for column in header:
        grid.add_column(column, justify="left" if column in study.axes else "right")
    for cells in body:
        grid.add_row(*cells)
    console.print(grid)
