"""What 100,000 nodes cost against 50, 10 of them drawn: start-up, a round, memory.

python -m benchmarks.population
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fedpns_ray import Experiment, run
from fedpns_ray.records.record import Record

MANY, FEW, ROUNDS = 100_000, 50, 12
CASES: dict[str, dict[str, Any]] = {
    "synthetic": {"dataset": "synthetic", "epochs": 20},
    "mnist": {"dataset": "mnist", "model": "cnn-m"},
}


def one(case: str, nodes: int) -> None:
    """In a process of its own: seconds to the first round, of a round, of the whole run, and peak MB."""
    first: list[float] = []

    def on_round(record: Record) -> None:
        first.append(time.time() - STARTED - record["seconds"] if not first else 0.0)

    e = Experiment(strategy="fedpns", nodes=nodes, fraction=10 / nodes, rounds=ROUNDS, **CASES[case])
    result = run(e, on_round=on_round, progress=False)
    seconds = statistics.median(record["seconds"] for record in result.records[2:-1])
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(first[0], seconds, time.time() - STARTED, int(found[1]) / 1e3 if found else 0)


def main() -> None:
    for case in CASES:
        figures: dict[int, list[list[float]]] = {}
        for nodes in (FEW, MANY) * 3:
            command = [sys.executable, "-m", "benchmarks.population", case, str(nodes), str(time.time())]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            figures.setdefault(nodes, []).append([float(x) for x in done.stdout.split()])
        best = {nodes: [min(column) for column in zip(*rows, strict=True)] for nodes, rows in figures.items()}
        for nodes, (startup, seconds, total, peak) in best.items():
            print(
                f"{case}, {nodes:7,d} nodes: start-up {startup:.2f} s, round {seconds * 1e3:.0f} ms, "
                f"whole run {total:.1f} s, memory {peak:.0f} MB"
            )
        few, many = best[FEW], best[MANY]
        ratios = [m / f for m, f in zip(many, few, strict=True)]
        print(f"  start-up x {ratios[0]:.2f}, round x {ratios[1]:.2f}, memory {many[3] - few[3]:+.0f} MB", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        STARTED = float(sys.argv[3])
        one(sys.argv[1], int(sys.argv[2]))
    else:
        main()
