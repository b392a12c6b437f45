"""Sends a study or a run to a cluster: ships the folder, runs it there as a job, follows its log, fetches its results.

The job does not depend on the command that follows it. The same command given again follows the running job, or starts
one that resumes where the last one stopped. Results are fetched through the log of a second small job, so they may be
in a bucket that only the cluster can read, or in a folder that only its machines share.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import shlex
import sys
import time
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from ray.job_submission import JobDetails, JobStatus

from fedpns_ray.atomic_file import write_whole
from fedpns_ray.errors import InputError, LostError, Shown, one_line
from fedpns_ray.records.claims import JOB
from fedpns_ray.records.file_names import CHECKPOINT, PREVIOUS
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.jobs import connected

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
FETCHED_WITHIN = 300.0
"""Seconds for the job that fetches results."""
STOPPED_WITHIN = 15
"""Seconds that Ray leaves a job to stop before it is killed: trials take a checkpoint meanwhile."""
OUT = "out"
"""Metadata of a job: where it writes."""
BEGIN, END = "-----BEGIN STUDY-----", "-----END STUDY-----"
LOST = (RuntimeError, ConnectionError, OSError, aiohttp.ClientError, asyncio.TimeoutError)


class Submission:
    """One study or run on one cluster: its jobs share a name and are numbered."""

    def __init__(self, address: str, words: Sequence[str], file: Path | None, out: str) -> None:
        """`words`: the command on the cluster, such as `study s.yaml`; `file`: what it reads, the study's file."""
        self._command, self._out = ["python", "-m", "fedpns_ray", *words, "--address", "auto"], out
        digest = hashlib.sha256("\0".join(words).encode() + (file.read_bytes() if file else b"")).hexdigest()
        self._name = f"fedpns-{file.stem if file else words[0]}-{digest[:12]}"
        self._client = connected(address)

    def start(self, say: Callable[[str], None]) -> str:
        """The job that is already running, or a new one; `say` prints which, as the command's own output."""
        every = self._client.list_jobs()
        jobs = [job for job in every if (job.submission_id or "").startswith(f"{self._name}-")]
        for job in jobs:
            if not job.status.is_terminal():
                say(f"following {job.submission_id}, which is already running there")
                return str(job.submission_id)
        for job in every:
            if not job.status.is_terminal() and (job.metadata or {}).get(OUT) == self._out:
                hint = f"wait for it, or stop it: fedpns jobs stop {job.submission_id}"
                raise InputError("out", Shown(self._out), hint=hint, problem=f"is in use by job {job.submission_id}")
        name = self._submit(self._command, f"{self._name}-{len(jobs) + 1}", {OUT: self._out})
        say(f"sent as {name}; it keeps running if this command is stopped, and the same command follows it again")
        return name

    def _submit(self, command: Sequence[str], name: str, metadata: dict[str, str] | None = None) -> str:
        variables = {JOB: name, "RAY_JOB_STOP_WAIT_TIME_S": str(STOPPED_WITHIN)}
        environment = {"working_dir": ".", "excludes": list(LEFT_HERE), "env_vars": variables}
        try:
            return str(
                self._client.submit_job(
                    entrypoint=shlex.join(command), submission_id=name, runtime_env=environment, metadata=metadata
                )
            )
        except (RuntimeError, ValueError) as error:
            raise InputError("submit", problem=f"the cluster refused the job ({one_line(error)})") from None

    def follow(self, name: str, write: Callable[[str], Any]) -> int:
        """Copy the job's log until it ends; returns its exit code."""
        return follow(self._client, name, write)

    def fetch(self, to: Path) -> list[str]:
        """Copy a study's own files (tables, curves, pictures; no trials), or a run's, to a folder on this machine."""
        name = self._submit(["python", "-m", "fedpns_ray.study.submission", self._out], f"fetch-{time.time_ns()}")
        deadline = time.monotonic() + FETCHED_WITHIN
        while not (status := self._client.get_job_status(name)).is_terminal() and time.monotonic() < deadline:
            time.sleep(0.5)
        log = self._client.get_job_logs(name)
        if status != JobStatus.SUCCEEDED or END not in log:
            raise LostError(f"results cannot be fetched ({one_line(log[-LONGEST_LOG:], LONGEST_LOG)})")
        files = unpack(log.partition(BEGIN)[2].partition(END)[0])
        to.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            write_whole(to / file, content)
        return list(files)


def follow(client: Any, name: str, write: Callable[[str], Any]) -> int:
    """Copy a job's log until it ends, across lost connections; returns its exit code."""
    seen, lost = 0, 0.0

    async def tail() -> None:
        nonlocal seen, lost
        passed, log = 0, client.tail_job_logs(name)
        while (text := await _next_of(log)) is not None:
            new = text[max(0, seen - passed) :]  # a new connection starts with what was seen before
            passed += len(text)
            if new:
                write(new)
            seen, lost = max(seen, passed), 0.0

    while True:
        try:
            asyncio.run(tail())
            job = client.get_job_info(name)
            if job.status.is_terminal():
                return _exit_code(job)
            lost = 0.0
        except LOST as error:
            lost = lost or time.monotonic()
            if time.monotonic() - lost > PATIENCE:
                reason = f"no answer from the cluster ({one_line(error)}); {name} keeps running there"
                raise LostError(reason) from None
        time.sleep(1)


async def _next_of(log: AsyncIterator[str]) -> str | None:
    """What a job says next; None once its log is over, or after a silence.

    A log has no deadline of its own: a silent job and a cluster that is gone look the same. So after a silence the
    cluster is asked about the job, which has one, and the log is followed again from where it was.
    """
    waiting = asyncio.ensure_future(anext(log, None))
    try:
        return waiting.result() if (await asyncio.wait([waiting], timeout=PATIENCE))[0] else None
    finally:
        waiting.cancel()


def _exit_code(job: JobDetails) -> int:
    if job.status == JobStatus.STOPPED:
        return 130
    return 0 if job.status == JobStatus.SUCCEEDED else job.driver_exit_code or 1


def pack(storage: Storage) -> bytes:
    """The files at the top level of a study's storage, or of a run without its checkpoints, as one archive."""
    names = [name for name in storage.names() if "." in name.strip(".") and name not in (CHECKPOINT, PREVIOUS)]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in zip(names, storage.read_all(names), strict=True):
            if content is not None:
                archive.writestr(name, content)
    return packed.getvalue()


def unpack(packed: str) -> dict[str, bytes]:
    """The files of such an archive, as a log holds it; a cluster names files, and no places for them."""
    try:
        with zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))) as archive:
            return {name: archive.read(name) for name in archive.namelist() if Path(name).name == name}
    except (ValueError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise LostError(f"results cannot be fetched (what arrived is no archive: {one_line(error)})") from None


if __name__ == "__main__":
    print(BEGIN, base64.encodebytes(pack(Storage(sys.argv[1]))).decode(), END, sep="\n")
