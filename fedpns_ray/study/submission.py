"""Sends a study to a cluster: ships the folder, runs the study there as a job, follows its log, fetches its tables.

The job does not depend on the command that follows it. The same command given again follows the running job, or starts
one that resumes where the last one stopped. Results are fetched through the log of a second small job, so they may be
in a bucket that only the cluster can read, or in a folder that only its machines share.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import logging
import os
import shlex
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from fedpns_ray.errors import InputError, LostError, Shown, one_line
from fedpns_ray.records.storage import Storage

LEFT_HERE = (
    "/.git",
    "/.venv",
    "/data",
    "/runs",
    "*.egg-info",
    "__pycache__",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
)
"""What is not shipped, as .gitignore patterns; without its slash, `data` would also match fedpns_ray/data."""
PATIENCE = 60.0
"""Seconds without an answer after which following is given up."""
LONGEST_LOG = 300
"""Characters of a failed job's log that are shown."""
BEGIN, END = "-----BEGIN STUDY-----", "-----END STUDY-----"
LOST = (RuntimeError, ConnectionError, OSError, aiohttp.ClientError)


class Submission:
    """One study on one cluster: its jobs share a name and are numbered."""

    def __init__(self, address: str, arguments: Sequence[str], study: Path, out: str) -> None:
        self._command, self._out = ["python", "-m", "fedpns_ray", "study", *arguments, "--address", "auto"], out
        digest = hashlib.sha256("\0".join(arguments).encode() + study.read_bytes()).hexdigest()
        self._name = f"fedpns-{study.stem}-{digest[:12]}"
        self._client = _client(address)

    def start(self, say: Callable[[str], None]) -> str:
        """The job that is already running, or a new one; `say` prints which, as the command's own output."""
        jobs = [job for job in self._client.list_jobs() if (job.submission_id or "").startswith(f"{self._name}-")]
        for job in jobs:
            if not job.status.is_terminal():
                say(f"following {job.submission_id}, which is already running there")
                return str(job.submission_id)
        name = self._submit(self._command, f"{self._name}-{len(jobs) + 1}")
        say(f"sent as {name}; it keeps running if this command is stopped, and the same command follows it again")
        return name

    def _submit(self, command: Sequence[str], name: str) -> str:
        environment = {"working_dir": ".", "excludes": list(LEFT_HERE)}
        try:
            return str(
                self._client.submit_job(entrypoint=shlex.join(command), submission_id=name, runtime_env=environment)
            )
        except (RuntimeError, ValueError) as error:
            raise InputError("submit", problem=f"the cluster refused the job ({one_line(error)})") from None

    def follow(self, name: str, write: Callable[[str], Any]) -> int:
        """Copy the job's log until it ends; returns its exit code."""
        seen, lost = 0, 0.0

        async def tail() -> None:
            nonlocal seen, lost
            passed = 0
            async for text in self._client.tail_job_logs(name):
                new = text[max(0, seen - passed) :]  # a new connection starts with what was seen before
                passed += len(text)
                if new:
                    write(new)
                seen, lost = max(seen, passed), 0.0

        while True:
            try:
                asyncio.run(tail())
                job = self._client.get_job_info(name)
                if job.status.is_terminal():
                    return _exit_code(job)
                lost = 0.0
            except LOST as error:
                lost = lost or time.monotonic()
                if time.monotonic() - lost > PATIENCE:
                    reason = f"no answer from the cluster ({one_line(error)}); {name} keeps running there"
                    raise LostError(reason) from None
            time.sleep(1)

    def fetch(self, to: Path) -> list[str]:
        """Copy the study's own files (tables, curves, pictures; no trials) to a folder on this machine."""
        name = self._submit(["python", "-m", "fedpns_ray.study.submission", self._out], f"fetch-{time.time_ns()}")
        while not (status := self._client.get_job_status(name)).is_terminal():
            time.sleep(0.5)
        log = self._client.get_job_logs(name)
        if status != JobStatus.SUCCEEDED or END not in log:
            raise LostError(f"results cannot be fetched ({one_line(log[-LONGEST_LOG:], LONGEST_LOG)})")
        packed = base64.b64decode(log.partition(BEGIN)[2].partition(END)[0])
        to.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            names = archive.namelist()
            for file in names:
                (to / Path(file).name).write_bytes(archive.read(file))
        return names


def _client(address: str) -> JobSubmissionClient:
    if not address.startswith(("http://", "https://")):
        raise InputError("submit", Shown(address), "it must be like http://127.0.0.1:8265")
    logging.getLogger("ray").setLevel(logging.WARNING)
    try:
        return JobSubmissionClient(address, headers=_token_header())
    except AuthenticationError:
        hint = "~/.ray/auth_token must be the one the cluster was started with"
        raise InputError("submit", Shown(address), hint=hint, problem="refuses the token of this machine") from None
    except (RuntimeError, ConnectionError, ValueError) as error:
        raise InputError("submit", Shown(address), problem=f"does not accept jobs ({one_line(error)})") from None


def _token_header() -> dict[str, str]:
    """The user's token, if there is one, from where Ray keeps it; Ray itself looks only if RAY_AUTH_MODE is set."""
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    if not token and path.is_file():
        token = path.read_text().strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _exit_code(job: JobDetails) -> int:
    if job.status == JobStatus.STOPPED:
        return 130
    return 0 if job.status == JobStatus.SUCCEEDED else job.driver_exit_code or 1


def pack(storage: Storage) -> bytes:
    """The files at the top level of a study's storage, as one archive."""
    names = [name for name in storage.names() if "." in name.strip(".")]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in zip(names, storage.read_all(names), strict=True):
            if content is not None:
                archive.writestr(name, content)
    return packed.getvalue()


if __name__ == "__main__":
    print(BEGIN, base64.encodebytes(pack(Storage(sys.argv[1]))).decode(), END, sep="\n")
