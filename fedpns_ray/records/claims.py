"""Claims: who may write to a place that several machines can reach. The latest claim holds.

A machine that was cut off does not know it: it computes, and once its link is back it would copy its old files over
those of the machine that took over. So every writer leaves a claim first, and reads it again before every file:
if the claim is now another's, it stops.

Stores differ in what they can do atomically, so nothing here needs more than a read that sees the last write, as a
file system, S3, Google Cloud Storage and Azure have it. What remains is one file: a write that had begun before the
new claim and that arrives after it. Such a file no longer matches the summary of its run; readers notice, and the
next command mends it to the same bits.
"""

from __future__ import annotations

import datetime
import os
import socket
import uuid
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedpns_ray.errors import InputError, Shown
from fedpns_ray.records.file_names import OWNER
from fedpns_ray.records.storage import Storage

JOB = "FEDPNS_JOB"
"""Environment variable with the name of the job on a cluster that this process belongs to."""


class TakenError(InputError):
    """Another process holds the place: writing there would overwrite its files."""


class Claim(BaseModel):
    """Who claimed a place, and when. Times are for people: no decision depends on the clocks of two machines."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    who: str
    since: str
    machine: str
    """Identifies the process table that `process` belongs to."""
    process: int = Field(ge=0, lt=2**31)
    started: float
    """When the process started, by its own machine: numbers of processes are used again."""
    ended: bool = False
    """Whether its owner has let go of the place."""

    def describe(self) -> str:
        return f"{self.who}, since {self.since}"

    @property
    def is_of_this_machine(self) -> bool:
        return self.machine == this_machine()

    @property
    def process_is_alive(self) -> bool:
        """Only known on its own machine."""
        try:
            process = psutil.Process(self.process)
            return abs(process.create_time() - self.started) < 1 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def this_machine() -> str:
    """The process table of this machine or container, until it is restarted."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return f"{socket.gethostname()}/{psutil.boot_time():.0f}"


def new_claim() -> Claim:
    """A claim of this process."""
    job, pid = os.environ.get(JOB), os.getpid()
    who = f"process {pid} on {socket.gethostname()}"
    return Claim(
        id=uuid.uuid4().hex,
        who=f"job {job} ({who})" if job else who,
        since=f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M:%S} UTC",
        machine=this_machine(),
        process=pid,
        started=psutil.Process(pid).create_time(),
    )


def read_claim(storage: Storage, folder: str = "") -> Claim | None:
    """The claim on a folder; None if there is none, or one that nobody can read."""
    content = storage.read(_name(folder))
    try:
        return None if content is None else Claim.model_validate_json(content)
    except ValidationError:
        return None


def write_claim(storage: Storage, claim: Claim, folder: str = "") -> None:
    storage.write(_name(folder), claim.model_dump_json().encode())


def refuse_taken(storage: Storage, own: str, folder: str = "") -> None:
    """A TakenError if the folder has been claimed by another. A claim that is missing belongs to nobody else."""
    there = read_claim(storage, folder)
    if there and there.id != own:
        place = f"{storage}{'/' if folder else ''}{folder}"
        problem = f"was taken over by {there.describe()}"
        raise TakenError("out", Shown(place), hint="this process writes nothing more there", problem=problem)


def _name(folder: str) -> str:
    return f"{folder}/{OWNER}" if folder else OWNER
