"""Where the memory and the start of a node actor go: what it imports, one after the other."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Costs, Entry, Figure, Setting
from benchmarks.sides import Side

STEPS = {"Python and Ray": "ray", "torch": "torch", "this package": "fedpns_ray.runtime.node_actor"}


def own_memory() -> float:
    """MB that only this process has (USS)."""
    private = re.findall(r"^Private_\w+:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    return sum(map(int, private)) / 1e3


def main() -> None:
    """In a process of its own, which has imported nothing yet: the sums after each step."""
    from benchmarks.serving import Questions

    questions = Questions()
    found: dict[str, float] = {}
    for step, module in STEPS.items():
        importlib.import_module(module)
        found |= {f"{step} MB": own_memory(), f"{step} s": time.process_time()}
    questions.serve(lambda question: found)


def measure(setting: Setting) -> Iterator[Costs]:
    for _ in range(setting.repeats):
        with Side("benchmarks.actor") as side:
            yield side.ask() | {"nothing MB": 0.0, "nothing s": 0.0}


ENTRIES = (
    Entry(
        "actor",
        "what the imports of a node actor take: memory of its own, and seconds of a core",
        tuple(
            Figure(f"{step}, {unit}", f"{step} {unit}", f"{before} {unit}", unit=unit)
            for unit in ("MB", "s")
            for before, step in zip(("nothing", *STEPS), STEPS, strict=False)
        ),
        measure,
        repeats=3,
    ),
)
