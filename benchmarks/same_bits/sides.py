"""The two sides: a tree each, and the process that runs its cases."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.same_bits.checkout import KEPT
from benchmarks.same_bits.processes import Progress, awaited, end_process, environment, tail
from fedpns_ray.errors import InputError

LAST = KEPT / "last"
SCRIPT = Path(__file__).with_name("side_script.py")
PLAN_WITHIN = 300.0
"""Seconds for the list of strategies."""


@dataclass
class Side:
    """A tree, and the process that runs its cases."""

    name: str
    tree: Path
    folder: Path
    """Its working directory: empty, so that nothing is imported from there."""
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    finished_at: float = 0.0
    """When the last case finished, or the process started."""
    process: subprocess.Popen[Any] | None = None
    _lines: IO[str] | None = None
    _torn: str = ""

    @property
    def log(self) -> Path:
        return LAST / f"{self.name}.log"

    @property
    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def prepare(self) -> None:
        self.folder.mkdir()
        if not (self.tree / ".venv" / "bin" / "python").exists():
            raise InputError("tree", self.tree, hint="create it with `make .venv/.ready`", problem="has no .venv")

    def _command(self, *arguments: str) -> list[str]:
        script = self.folder / SCRIPT.name
        shutil.copy(SCRIPT, script)
        return [str(self.tree / ".venv" / "bin" / "python"), str(script), *arguments]

    def strategies(self, progress: Progress) -> dict[str, list[str]]:
        """The strategies of this side and the names of their parameters."""
        answer = self.folder / "plan.json"
        with answer.open("w") as output, self.log.open("w") as log:
            process = subprocess.Popen(
                self._command("plan", str(self.tree)), cwd=self.folder, env=environment(), stdout=output, stderr=log
            )
            code = awaited(process, PLAN_WITHIN, f"the list of strategies at {self.name}", progress)
        if code:
            raise InputError("BASE", problem=f"its strategies cannot be listed ({tail(self.log)})")
        return dict(json.loads(answer.read_text()))

    def start(self, cases: Path) -> None:
        results = LAST / f"{self.name}.jsonl"
        results.write_text("")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self._command("cases", str(self.tree), str(cases), str(results)),
                cwd=self.folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._lines = results.open(encoding="utf-8")
        self.finished_at = time.monotonic()

    def look(self) -> list[str]:
        """The cases finished since the last look."""
        assert self._lines
        *whole, self._torn = (self._torn + self._lines.read()).split("\n")
        fresh = []
        for line in map(json.loads, whole):
            self.finished_at = time.monotonic()
            if "case" in line:
                self.done[line["case"]] = line
                fresh.append(line["case"])
            else:
                self.versions = line["versions"]
        return fresh

    def end(self) -> None:
        if self.process:
            end_process(self.process)
        if self._lines:
            self._lines.close()
