"""How long the phases of a piece of work take: by the host's clock, or, on CUDA, by events on the device.

On a GPU the host runs ahead: its own clock would charge training to whatever it waits in.
"""

from __future__ import annotations

import time
from typing import Any

import torch


class Phases:
    """The seconds between laps, by the host's clock."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._marks: list[Any] = [self._mark()]

    def _mark(self) -> Any:
        return time.perf_counter()

    def _between(self, before: Any, after: Any) -> float:
        return float(after - before)

    def lap(self, name: str) -> None:
        """The phase of this name ends here."""
        self._names.append(name)
        self._marks.append(self._mark())

    def seconds(self) -> dict[str, float]:
        """By phase."""
        return {name: self._between(*self._marks[k : k + 2]) for k, name in enumerate(self._names)}


class CudaPhases(Phases):
    """The seconds between laps, by events that the GPU passes; waits for the last one."""

    def _mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, before: Any, after: Any) -> float:
        after.synchronize()
        return float(before.elapsed_time(after)) / 1000


def phases_on(device: torch.device) -> Phases:
    return CudaPhases() if device.type == "cuda" else Phases()
