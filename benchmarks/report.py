"""How long the report page of 100 runs of 200 rounds takes, and how large it is: `python -m benchmarks.report DIR`.

DIR is a study with finished runs of FedPNS and FedAvg. Its records are copied under other seeds and values of sigma
until there are 100 runs of 200 rounds (records of shorter runs are repeated).
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

from fedpns_ray.experiment import folder_name
from fedpns_ray.records.lines import to_lines
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.reporting.collecting import gather
from fedpns_ray.reporting.page import write_page

RUNS, ROUNDS, SEEDS = 100, 200, 5


def multiply(source: Path, target: Path, runs: int = RUNS, rounds: int = ROUNDS) -> None:
    """Write `runs` run folders, copied from those of a study."""
    originals = [RunFolder(path.parent) for path in sorted(source.glob("trials/*/summary.json"))]
    experiments = [folder.experiment for folder in originals]
    for k in range(runs):
        sigma = round(0.2 + 0.01 * (k // (2 * SEEDS)), 2)
        strategy = ("fedpns", "fedavg")[k // SEEDS % 2]
        matching = [n for n, known in enumerate(experiments) if known and known.strategy == strategy]
        n = matching[k % len(matching)]
        original, known = originals[n], experiments[n]
        assert known is not None
        experiment = known.but(seed=1 + k % SEEDS, sigma=sigma, rounds=rounds)
        records = original.records()
        folder = target / folder_name(experiment)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(experiment.to_yaml())
        lines = [records[t % len(records)] | {"round": t + 1} for t in range(rounds)]
        content, _ = to_lines(lines)
        (folder / "rounds.jsonl").write_bytes(content)
        own = {"rounds": rounds, "records_sha256": hashlib.sha256(content).hexdigest()}
        (folder / "summary.json").write_text(json.dumps((original.summary() or {}) | own))


def main(source: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "study"
        multiply(source, folder)
        began = time.perf_counter()
        gathered = gather([folder])
        read = time.perf_counter()
        write_page(gathered, Path(place) / "report.html", "fedpns report")
        done = time.perf_counter()
        size = (Path(place) / "report.html").stat().st_size / 1e6
    print(
        f"{len(gathered.runs)} runs of {ROUNDS} rounds: {done - began:.1f} s "
        f"({read - began:.1f} to read, {done - read:.1f} to write), {size:.1f} MB"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
