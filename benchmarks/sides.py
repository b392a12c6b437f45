"""A side, seen from the benchmark: a process that is asked and answers, in an environment of its own if need be."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.harness import Unavailable
from benchmarks.same_bits.checkout import ROOT
from benchmarks.same_bits.processes import END_WITHIN, end_process, environment, tail

ANSWERED_WITHIN = 600.0
"""Seconds for one answer; the first one also takes the start."""


class Side:
    """A process that runs `main` of a module, and answers one question at a time."""

    def __init__(self, module: str, *arguments: str, python: Path | str = sys.executable, tree: Path = ROOT) -> None:
        self._name = f"{module} {' '.join(arguments)}"
        self._log = tempfile.NamedTemporaryFile(prefix="bench-", suffix=".log")  # noqa: SIM115 (closed with the side)
        words = [str(python), "-c", f"from {module} import main; main(*{list(arguments)!r})"]
        one = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree)}
        self._process = subprocess.Popen(
            words, cwd=tree, env=environment() | one, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        self._read = b""

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._lost() from None
        return dict(json.loads(self._line(time.monotonic() + ANSWERED_WITHIN)))

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._read:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise Unavailable(f"{self._name}: no answer within {ANSWERED_WITHIN:.0f} s")
            piece = os.read(pipe, 1 << 16)
            if not piece:
                raise self._lost()
            self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _lost(self) -> Unavailable:
        return Unavailable(f"{self._name}: ended ({tail(Path(self._log.name))})")

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No more questions: the process ends by itself, with its Ray; if not, it is ended."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.close()
            self._process.wait(END_WITHIN if kind is None else 1)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            end_process(self._process)
        self._process.stdout.close()
        self._log.close()
