"""The report page of 100 runs of 200 rounds against that of 10: time per run.

The records of two short runs are repeated, and copied under other seeds and values of sigma, until there are so many.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.harness import Costs, Entry, Figure, Setting, in_turn
from fedpns_ray import Experiment, run
from fedpns_ray.naming import folder_name
from fedpns_ray.records.lines import to_lines
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.reporting.collecting import gather
from fedpns_ray.reporting.page import write_page

FEW, RUNS, ROUNDS, SEEDS = 10, 100, 200, 5


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


def seconds(source: Path, runs: int, place: Path) -> float:
    """To read so many runs and write their page, per run."""
    folder = place / f"{runs} runs"
    if not folder.exists():
        multiply(source, folder, runs)
    began = time.perf_counter()
    write_page(gather([folder]), place / "report.html", "fedpns report")
    return (time.perf_counter() - began) / runs


def measure(setting: Setting) -> Iterator[Costs]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        place = Path(name)
        for strategy in ("fedpns", "fedavg"):
            run(Experiment(strategy=strategy, rounds=20), place / "trials" / strategy, progress=False)
        sides = {f"{runs}": partial(seconds, place, runs, place) for runs in (FEW, RUNS)}
        yield from in_turn(sides, setting.repeats)


ENTRIES = (
    Entry(
        "report",
        f"the report page of {RUNS} runs of {ROUNDS} rounds, time per run, against that of {FEW}",
        (Figure(f"{RUNS} runs", f"{RUNS}", f"{FEW}", at_most=1),),
        measure,
        repeats=3,
    ),
)
