"""A cluster of logical GPUs on one machine: 4 raylets with 4 GPUs each.

    python -m benchmarks.cluster [ACTORS]               400 nodes, 0.25 GPU per actor
    python -m benchmarks.cluster --one-each [NODES]     the paper's picture: one node, one actor, 0.04 GPU each

The GPUs exist only as numbers, so this shows where actors are placed, what an actor costs in memory and in seconds of a
core, and that the run completes, not how fast a GPU is. An actor costs about 200 MB and 2 s of a core: 32 actors (the
default) are 2 per GPU; 64 would fill them. 100 nodes with an actor each need 20 GB.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster
from ray.util import list_named_actors

from fedpns_ray import Experiment, run
from fedpns_ray.records.record import Record
from fedpns_ray.runtime.layout import Layout

MACHINES, GPUS = 4, 4


def places() -> list[dict[str, Any]]:
    """Where every actor is, with its own memory in MB and the seconds of a core that it has taken so far."""
    actors = [ray.get_actor(name) for name in list_named_actors() if "node actor" in name]
    found: list[dict[str, Any]] = ray.get([actor.describe.remote() for actor in actors])
    for place in found:
        process = psutil.Process(place["pid"])
        place["memory"] = process.memory_full_info().uss / 1e6
        place["seconds"] = sum(process.cpu_times()[:2])
    return found


def asked() -> tuple[Experiment, Layout]:
    """The experiment and the layout that the arguments name; the GPUs are only numbers."""
    words = [word for word in sys.argv[1:] if word != "--one-each"]
    number = int(words[0]) if words else None
    e = Experiment(strategy="fedpns", dataset="mnist", model="mlr", rounds=20)
    layout = Layout(cpus_per_actor=0.1, cpu_fallback=True)
    if "--one-each" in sys.argv:
        return e.but(nodes=number or 100, fraction=0.2), replace(layout, nodes_per_actor=1, gpus_per_actor=0.04)
    return e.but(nodes=400, fraction=0.1), replace(layout, actors=number or 32, gpus_per_actor=0.25)


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="  %(message)s")
    logging.getLogger("fedpns_ray").setLevel(logging.INFO)
    e, layout = asked()
    machine = {"num_cpus": 4, "num_gpus": GPUS, "object_store_memory": 200 * 10**6, "memory": 16 * 10**9}
    cluster = Cluster(initialize_head=True, head_node_args={**machine, "include_dashboard": False})
    for _ in range(MACHINES - 1):
        cluster.add_node(**machine)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    cluster.wait_for_nodes()
    started = time.perf_counter()
    first: list[float] = []
    seen: list[dict[str, Any]] = []

    def look(record: Record) -> None:
        first.append(time.perf_counter() - started)
        if record["round"] == 2:
            seen.extend(places())

    result = run(e, on_round=look, layout=layout, progress=False)
    alone = run(e, progress=False)
    carried = Counter((place["machine"], gpu) for place in seen for gpu in place["gpu_ids"])
    numbers = sorted(carried.values())
    print(f"{MACHINES} machines with {GPUS} GPUs each, {e.nodes} nodes, {len(seen)} actors")
    print(f"  GPUs in use {len(carried)} of {MACHINES * GPUS}; actors on a GPU: {numbers[0]} to {numbers[-1]}")
    memory, seconds = (statistics.median(place[what] for place in seen) for what in ("memory", "seconds"))
    print(f"  an actor: {memory:.0f} MB of its own, {seconds:.1f} s of a core up to round 2 (medians)")
    print(
        f"  start-up {first[0]:.1f} s, {len(first)} rounds, median {statistics.median(result.rounds['seconds']):.3f} s"
    )
    print(f"  final accuracy {result.summary['final_accuracy']:.2%}")
    same = result.summary["weights_sha256"] == alone.summary["weights_sha256"]
    print(f"  weights {'equal to' if same else 'DIFFERENT from'} those of one process")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
