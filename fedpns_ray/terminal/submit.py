"""`--submit`: a study or a run as a job on a cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedpns_ray.addresses import carries_secrets, redacted
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import folder_name
from fedpns_ray.records.file_names import TRIALS
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.study_file import Study
from fedpns_ray.terminal.screen import console, messages
from fedpns_ray.terminal.words import without_submit

NOT_THERE = "is not allowed together with --submit"
SHARED = (
    "it must be a URI such as s3://bucket/study, or the absolute path of a folder that all machines of the cluster "
    "share"
)
ON_THE_HEAD = "it must be the absolute path of a folder on the cluster's head, or of one that its machines share"


def submit_study(study: Study, options: argparse.Namespace) -> int:
    """Send the study, follow its log, and bring its tables to this machine."""
    here = Path("runs") / study.name
    _refuse(options, ("address", "json"), options.study)
    _refuse_secrets(options, ("out", "mlflow"))
    if "://" not in (options.out or "") and not Path(options.out or "").is_absolute():
        raise InputError("out", Shown(options.out or "nothing"), SHARED, problem=NOT_THERE)
    if (here / TRIALS).exists():
        raise InputError(
            "submit",
            here,
            "the cluster's tables would go there",
            "move it",
            problem="holds a study that ran on this machine",
        )
    return _sent(options, options.study, here, f"trials are in {Storage(options.out)}", fetched=not options.dry_run)


def submit_run(experiment: Experiment, options: argparse.Namespace) -> int:
    """Send the run, follow its log, and bring its folder to this machine."""
    here = Path("runs") / folder_name(experiment)
    _refuse(options, ("address", "json", "in_process"), options.config)
    if not Path(options.out or "").is_absolute():
        raise InputError("out", Shown(redacted(options.out or "nothing")), ON_THE_HEAD, problem=NOT_THERE)
    RunFolder(here).claim(experiment)
    return _sent(options, options.config, here, f"its checkpoints are in {options.out} on the cluster")


def _sent(options: argparse.Namespace, file: Path | None, here: Path, rest: str, fetched: bool = True) -> int:
    from fedpns_ray.study.submission import Submission

    submission = Submission(options.submit, without_submit(options.words), file, options.out)
    job = submission.start(lambda text: messages.print(text, soft_wrap=True))
    try:
        code = submission.follow(job, lambda text: console.print(text, end="", soft_wrap=True))
    except KeyboardInterrupt:
        stop = f"fedpns jobs stop {job} --address {options.submit}"
        messages.print(f"no longer followed; it keeps running there (to stop it: {stop})", soft_wrap=True)
        return 130
    if code in (0, 1, 3) and fetched:
        names = ", ".join(submission.fetch(here))
        console.print(f"{names} fetched to {here}; {rest}", soft_wrap=True)
        messages.print("the head of the cluster runs until you stop it, such as with ray down", soft_wrap=True)
    return code


def _refuse(options: argparse.Namespace, flags: tuple[str, ...], file: Path | None) -> None:
    """Refuse what cannot work from another machine."""
    for field in flags:
        if given := getattr(options, field):
            raise InputError(field, Shown(given), problem=NOT_THERE)
    if file and (file.is_absolute() or ".." in file.parts):
        field = "study" if "study" in options else "config"
        raise InputError(field, file, "it must be in this folder", problem=NOT_THERE)


def _refuse_secrets(options: argparse.Namespace, flags: tuple[str, ...]) -> None:
    for field in flags:
        if carries_secrets(place := getattr(options, field) or ""):
            raise InputError(
                field,
                Shown(redacted(place)),
                "everyone who can list the jobs of a cluster sees their commands",
                "give the machines of the cluster a role, or environment variables such as AWS_ACCESS_KEY_ID",
                problem="carries credentials, which are not allowed beside --submit",
            )
