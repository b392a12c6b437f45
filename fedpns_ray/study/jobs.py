"""The jobs of a cluster, from another machine: what runs there, what it says, and how to stop it.

`ray job` does the same, but sends no token unless RAY_AUTH_MODE is set; here the token travels if there is one.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobStatus

from fedpns_ray.errors import InputError, LostError, Shown, one_line
from fedpns_ray.runtime.ray_private import job_client
from fedpns_ray.validation import suggestion

ANSWERED_WITHIN = 60.0
"""Seconds for a cluster to answer one request."""
STOPPED_WITHIN = 60.0
"""Seconds for a job to stop."""
FETCHING = "fetch-"
"""Begins the names of the jobs that fetch results, which do not count as work."""


class Job(NamedTuple):
    """A job as it is listed; times in seconds since 1970."""

    name: str
    status: str
    running: bool
    started: float
    ended: float | None
    command: str


def connected(address: str, field: str = "submit") -> Any:
    """Ray's client for the jobs of the cluster whose dashboard is there; an InputError if it does not accept any."""
    if not address.startswith(("http://", "https://")):
        raise InputError(field, Shown(address), "it must be like http://127.0.0.1:8265")
    logging.getLogger("ray").setLevel(logging.WARNING)
    try:
        return job_client(address, _token_header(), ANSWERED_WITHIN)
    except AuthenticationError:
        hint = "~/.ray/auth_token must be the one the cluster was started with"
        raise InputError(field, Shown(address), hint=hint, problem="refuses the token of this machine") from None
    except (RuntimeError, OSError, ValueError) as error:
        raise InputError(field, Shown(address), problem=f"does not accept jobs ({one_line(error)})") from None


def _token_header() -> dict[str, str]:
    """The user's token, if there is one, from where Ray keeps it; Ray itself looks only if RAY_AUTH_MODE is set."""
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    if not token and path.is_file():
        token = path.read_text().strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


class Jobs:
    """The jobs that were submitted to one cluster."""

    def __init__(self, address: str) -> None:
        self.client = connected(address, "address")

    def listed(self) -> list[Job]:
        """All jobs, the latest last."""
        found = [_job(details) for details in self.client.list_jobs() if details.submission_id]
        return sorted((job for job in found if not job.name.startswith(FETCHING)), key=lambda job: job.started)

    def at_work(self) -> bool:
        """Whether anything runs on the cluster, a program that has joined it by itself included."""
        return any(not details.status.is_terminal() for details in self.client.list_jobs())

    def named(self, name: str | None, running: bool = False) -> str:
        """The name of a job, which may be left out where only one is meant: the one that runs, or the last one."""
        jobs = [job for job in self.listed() if job.running or not running]
        if name is not None:
            if name not in (names := [job.name for job in self.listed()]):
                raise InputError("name", name, problem="is not a job of this cluster", hint=suggestion(name, names))
            return name
        at_work = [job for job in jobs if job.running] or jobs[-1:]
        if len(at_work) != 1:
            problem = "no job is running" if running and not at_work else f"{len(at_work)} jobs are running"
            raise InputError("name", problem=problem, hint=f"name one: {_names(at_work)}" if at_work else "")
        return at_work[0].name

    def log(self, name: str) -> str:
        return str(self.client.get_job_logs(name))

    def stop(self, name: str) -> bool:
        """Stop a job and wait for its end; False if it was over before."""
        if self.client.get_job_status(name).is_terminal():
            return False
        self.client.stop_job(name)
        deadline = time.monotonic() + STOPPED_WITHIN
        while not self.client.get_job_status(name).is_terminal():
            if time.monotonic() > deadline:
                raise LostError(f"{name} did not stop within {STOPPED_WITHIN:.0f} s")
            time.sleep(0.5)
        return True


def idle_seconds(jobs: Sequence[Job], now: float) -> float | None:
    """How long no job has run; None while one runs, or if none ever has."""
    if not jobs or any(job.running for job in jobs):
        return None
    return now - max(job.ended or job.started for job in jobs)


def _job(details: JobDetails) -> Job:
    ended = details.end_time / 1e3 if details.end_time else None
    started = (details.start_time or 0) / 1e3
    running = not details.status.is_terminal()
    status = "waiting" if details.status == JobStatus.PENDING else str(details.status.value).lower()
    return Job(str(details.submission_id), status, running, started, ended, details.entrypoint)


def _names(jobs: Sequence[Job]) -> str:
    return ", ".join(job.name for job in jobs)
