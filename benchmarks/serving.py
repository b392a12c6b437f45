"""A side, seen from within: questions come in as lines of JSON, answers go out. Only Python's own library is needed."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO


class Questions:
    """The questions of the benchmark. What else this process prints goes to its log."""

    def __init__(self) -> None:
        self._answers: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in sys.stdin:
            yield json.loads(line)

    def reply(self, answer: dict[str, Any]) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def serve(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Answer until there are no more questions."""
        for question in self:
            self.reply(answer(question))


class Stopwatch:
    """Seconds since it was made, by the clock and of a core, per round."""

    def __init__(self) -> None:
        self._seconds, self._cpu = time.perf_counter(), time.process_time()

    def per(self, rounds: int) -> dict[str, float]:
        seconds, cpu = time.perf_counter() - self._seconds, time.process_time() - self._cpu
        return {"seconds": seconds / rounds, "cpu": cpu / rounds}
