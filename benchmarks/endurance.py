"""1,000 rounds: the private memory of a run's processes, and the object store, late in the run against early."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import ray

from benchmarks.harness import Costs, Entry, Figure, Setting
from benchmarks.serving import Questions
from benchmarks.sides import Side

EARLY, LATE, ROUNDS = 100, 990, 1_000
KINDS = {"server": "ServerActor", "node actors": "NodeActor", "Ray's control store": "gcs_server"}


def memory() -> dict[str, float]:
    """MB of its own (USS) of every kind of process below this one, and of the object store."""
    found = dict.fromkeys(KINDS, 0.0)
    for process in psutil.Process().children(recursive=True):
        for kind, name in KINDS.items():
            if name in " ".join(process.cmdline()):
                found[kind] += process.memory_full_info().uss / 1e6
    total, free = (r.get("object_store_memory", 0.0) for r in (ray.cluster_resources(), ray.available_resources()))
    return {**found, "object store": (total - free) / 1e6}


def main() -> None:
    from fedpns_ray import Experiment, Layout, run
    from fedpns_ray.records.record import Record

    questions, seen = Questions(), {}

    def look(record: Record) -> None:
        if record["round"] in (EARLY, LATE):
            seen.update({f"{kind} {record['round']}": mb for kind, mb in memory().items()})

    e = Experiment(strategy="fedpns", dataset="mnist", model="mlr", rounds=ROUNDS)
    run(e, layout=Layout(actors=2), on_round=look, progress=False)
    questions.serve(lambda question: seen)


def measure(setting: Setting) -> Iterator[Costs]:
    for _ in range(setting.repeats):
        with Side("benchmarks.endurance") as side:
            yield side.ask()


ENTRIES = (
    Entry(
        "endurance",
        f"{ROUNDS:,} rounds of FedPNS with MLR and 2 actors: memory in round {LATE} against round {EARLY}",
        tuple(
            Figure(kind, f"{kind} {LATE}", f"{kind} {EARLY}", at_most=10, unit="MB")
            for kind in (*KINDS, "object store")
        ),
        measure,
        repeats=1,
        usual=False,
    ),
)
