"""A study on one core against two: how well whole trials pack. Ratios, measured side by side.

    python -m benchmarks.study [REPEATS]

Needs MNIST under FEDPNS_DATA, and an otherwise idle machine. Times include Ray's start-up and the workers' imports.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ray

STUDY = """
base: {dataset: mnist, model: cnn-m, sigma: 0.3, rho: 1, rounds: 100}
axes: {strategy: [fedpns, fedavg]}
seeds: 1-4
"""


def once(cores: int) -> float:
    """Seconds for 8 CNN-M trials, from the start of the command to its end, on a Ray with `cores` cores."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "s.yaml").write_text(STUDY)
        command = [sys.executable, "-m", "benchmarks.study", f"--one={cores}", folder]
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - started


def one(cores: int, folder: str) -> None:
    from fedpns_ray.terminal.command_line import entry

    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    sys.argv = ["fedpns", "study", f"{folder}/s.yaml", "--out", f"{folder}/o"]
    entry()


def main() -> None:
    if sys.argv[1:] and sys.argv[1].startswith("--one="):
        one(int(sys.argv[1].partition("=")[2]), sys.argv[2])
    repeats = int(sys.argv[1]) if sys.argv[1:] else 3
    print("Packing: a study of 8 CNN-M trials of 100 rounds, MNIST; the whole command, alternating")
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeats):
        for cores, taken in times.items():
            taken.append(once(cores))
        print(f"  1 core {times[1][-1]:6.1f} s, 2 cores {times[2][-1]:6.1f} s: x {times[1][-1] / times[2][-1]:.2f}")
    ratios = sorted(a / b for a, b in zip(times[1], times[2], strict=True))
    print(f"  two cores against one: median x {ratios[len(ratios) // 2]:.2f}")


if __name__ == "__main__":
    main()
