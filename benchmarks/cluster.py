"""A cluster of logical GPUs on one machine: 4 raylets with 4 GPUs each, 400 nodes, 0.25 GPU per actor.

    python -m benchmarks.cluster [ACTORS]

The GPUs exist only as numbers, so this shows where actors are placed and that the run completes, not how fast a GPU is.
An actor costs about 190 MB and 2 s of a core: 32 actors (the default) are 2 per GPU; 64 would fill them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util import list_named_actors

from fedpns_ray import Experiment, run
from fedpns_ray.records.record import Record
from fedpns_ray.runtime.layout import Layout

MACHINES, GPUS, NODES = 4, 4, 400


def carried() -> Counter[tuple[str, int]]:
    """The number of actors on each (machine, GPU)."""
    actors = [ray.get_actor(name) for name in list_named_actors() if "node actor" in name]
    places: list[dict[str, Any]] = ray.get([actor.describe.remote() for actor in actors])
    return Counter((place["machine"], gpu) for place in places for gpu in place["gpu_ids"])


def main() -> None:
    actors = int(sys.argv[1]) if len(sys.argv) > 1 else 32
    machine = {"num_cpus": 4, "num_gpus": GPUS, "object_store_memory": 200 * 10**6, "memory": 16 * 10**9}
    cluster = Cluster(initialize_head=True, head_node_args={**machine, "include_dashboard": False})
    for _ in range(MACHINES - 1):
        cluster.add_node(**machine)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    cluster.wait_for_nodes()
    e = Experiment(strategy="fedpns", dataset="mnist", model="mlr", nodes=NODES, fraction=0.1, rounds=20)
    layout = Layout(
        actors=actors, gpus_per_actor=0.25, cpus_per_actor=0.1, cpu_fallback=True
    )  # the GPUs are only numbers
    started, first, seen = time.perf_counter(), [], []

    def look(record: Record) -> None:
        first.append(time.perf_counter() - started)
        if record["round"] == 2:
            seen.append(carried())

    result = run(e, on_round=look, layout=layout)
    alone = run(e)
    (places,) = seen
    numbers = sorted(places.values())
    print(f"{MACHINES} machines with {GPUS} GPUs each, {NODES} nodes, {actors} actors with 0.25 GPU")
    print(f"  GPUs in use {len(places)} of {MACHINES * GPUS}; actors on a GPU: {numbers[0]} to {numbers[-1]}")
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
