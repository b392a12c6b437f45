"""`fedpns study --submit`: the study as a job on a cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedpns_ray.addresses import carries_secrets, redacted
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.records.file_names import TRIALS
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.study_file import Study
from fedpns_ray.terminal.screen import console, messages
from fedpns_ray.terminal.words import without_submit


def submit(study: Study, options: argparse.Namespace) -> int:
    """Send the study, follow its log, and bring its tables to this machine."""
    from fedpns_ray.study.submission import Submission

    here = Path("runs") / study.name
    _refuse(options, here)
    submission = Submission(options.submit, without_submit(options.words), options.study, options.out)
    job = submission.start(lambda text: messages.print(text, soft_wrap=True))
    try:
        code = submission.follow(job, lambda text: console.print(text, end="", soft_wrap=True))
    except KeyboardInterrupt:
        messages.print(f"no longer followed; it keeps running there (to stop it: ray job stop {job})", soft_wrap=True)
        return 130
    if code in (0, 1, 3) and not options.dry_run:
        names = ", ".join(submission.fetch(here))
        console.print(f"{names} fetched to {here}; trials are in {Storage(options.out)}", soft_wrap=True)
    return code


def _refuse(options: argparse.Namespace, here: Path) -> None:
    """Refuse what cannot work from another machine, or would overwrite something on this one."""
    for field, given in (("address", options.address), ("json", options.json)):
        if given:
            raise InputError(field, Shown(given), problem="is not allowed together with --submit")
    out = options.out or ""
    for field, place in (("out", out), ("mlflow", options.mlflow or "")):
        if carries_secrets(place):
            raise InputError(
                field,
                Shown(redacted(place)),
                "everyone who can list the jobs of a cluster sees their commands",
                "give the machines of the cluster a role, or environment variables such as AWS_ACCESS_KEY_ID",
                problem="carries credentials, which are not allowed beside --submit",
            )
    if "://" not in out and not Path(out).is_absolute():
        raise InputError(
            "out",
            Shown(out or "nothing"),
            "it must be a URI such as s3://bucket/study, or the absolute path of a folder that all machines of the "
            "cluster share",
            problem="is not allowed together with --submit",
        )
    if options.study.is_absolute() or ".." in options.study.parts:
        raise InputError(
            "study", options.study, "it must be in this folder", problem="is not allowed together with --submit"
        )
    if (here / TRIALS).exists():
        raise InputError(
            "submit",
            here,
            "the cluster's tables would go there",
            "move it",
            problem="holds a study that ran on this machine",
        )
