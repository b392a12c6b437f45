"""Child processes: their environment, signs of life while they run, deadlines, and how they are ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from benchmarks.same_bits.comparison import LONGEST
from fedpns_ray.errors import InputError

LOOK_EVERY = 0.2
"""Seconds between two checks of a process."""
SAY_EVERY = {True: 0.5, False: 5.0}
"""Seconds between two signs of life, on a terminal and elsewhere."""
END_WITHIN = 30.0
"""Seconds for a process to end when told to."""


class Progress:
    """Permanent lines and a counter between them: rewritten in place on a terminal, printed now and then elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._terminal = self._stream.isatty()
        self._began = self._last = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, *lines: str) -> None:
        for line in lines:
            print(f"\r\x1b[K{line}" if self._terminal else line, flush=True, file=self._stream)
        if lines:
            self._last = time.monotonic()

    def tick(self, counter: str) -> None:
        if time.monotonic() - self._last < SAY_EVERY[self._terminal]:
            return
        line = f"{counter} ({self.seconds:.0f} s)"
        width = shutil.get_terminal_size().columns - 1
        shown, end = (f"\r\x1b[K{line[:width]}", "") if self._terminal else (line, "\n")
        print(shown, end=end, flush=True, file=self._stream)
        self._last = time.monotonic()


def environment() -> dict[str, str]:
    """This process's environment, without variables that redirect Python, make or Ray; no GPU; the same data folder."""
    dropped = ("PYTHON", "MAKE", "MFLAGS", "RAY_", "VIRTUAL_ENV", "COVERAGE", "GIT_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    if data := kept.get("FEDPNS_DATA"):
        kept["FEDPNS_DATA"] = str(Path(data).expanduser().absolute())
    return kept | {
        "PYTHONNOUSERSITE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # otherwise a busy machine starves the workers
    }


def awaited(process: subprocess.Popen[Any], within: float, what: str, progress: Progress) -> int:
    """Wait for a process with signs of life and a deadline; returns its exit code."""
    deadline = time.monotonic() + within
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise InputError(what, problem=f"not ready within {within:.0f} s")
            progress.tick(f"{what}: in progress")
            time.sleep(LOOK_EVERY)
    finally:
        end_process(process)
    return process.returncode


def end_process(process: subprocess.Popen[Any]) -> None:
    """End a process: SIGTERM first, so that it shuts down its Ray."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_WITHIN)


def tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:LONGEST] if lines else "no message"
