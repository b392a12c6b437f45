"""The Ray runtime, measured: speed against one process, scale, endurance, faults. Ratios, measured side by side.

    python -m benchmarks.runtime [speed] [scale] [endurance] [faults]

Needs MNIST under FEDPNS_DATA, and an otherwise idle machine: Ray's workers run at a lower priority than others.
"""

from __future__ import annotations

import logging
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import ray
from ray.util import list_named_actors

from fedpns_ray import Experiment, run
from fedpns_ray.core.run import Run
from fedpns_ray.core.training import Worker, one_thread
from fedpns_ray.core.work import Answer, Work
from fedpns_ray.data import build_population
from fedpns_ray.records.record import Record
from fedpns_ray.runtime.actor_group import ActorGroup
from fedpns_ray.runtime.deadlines import Deadline
from fedpns_ray.runtime.dealer import Dealer
from fedpns_ray.runtime.driver import begun
from fedpns_ray.runtime.layout import Layout
from fedpns_ray.runtime.node_actor import NodeActor
from fedpns_ray.runtime.session import session


def speed() -> None:
    """2 actors against one process with one thread, in alternating rounds, so that both see the same machine."""
    print("Speed: one round of FedPNS (training, aggregation, full test), MNIST, 10 of 50 nodes; medians, alternating")
    with session(), one_thread():
        for model, count in (("cnn-m", 40), ("mlr", 300)):
            e = Experiment(strategy="fedpns", dataset="mnist", model=model, rounds=count + 5)
            population = build_population(e)
            shared, worker = ray.put(population), Worker(e, population)
            one_core = NodeActor.options(num_cpus=1)  # type: ignore[attr-defined]
            actors = [one_core.remote(e, shared, False) for _ in range(2)]
            ray.get([actor.describe.remote() for actor in actors])
            costs = population.sizes.astype(np.float64) * e.epochs
            dealer = Dealer(ActorGroup(actors, Deadline()), worker, costs)
            runs = [_seconds(begun(e, population, worker), answer) for answer in (worker.answer, dealer.answer)]
            pairs = list(zip(*runs, strict=True))[4:-1]
            alone, two = (statistics.median(pair[k] for pair in pairs) for k in (0, 1))
            print(
                f"  {model:6s} in process {alone * 1e3:7.1f} ms, 2 actors {two * 1e3:7.1f} ms: "
                f"{alone / two:.2f} times as fast ({two / alone:.2f} of the time)"
            )
            for actor in actors:
                ray.kill(actor)


def _seconds(run: Run, answer: Callable[[Work], Answer]) -> Iterator[float]:
    """The seconds of each round."""
    while (work := run.ask()) is not None:
        if round := run.tell(answer(work)):
            yield sum(round.seconds.values())


def memory_of(mark: str, kind: str) -> dict[int, tuple[str, float]]:
    """MB of every process that carries the mark: uss is its private memory, pss adds its share of shared memory."""
    found = {}
    for process in psutil.process_iter(["name"]):
        try:
            if process.environ().get("FEDPNS_BENCH") == mark:
                found[process.pid] = (process.name(), getattr(process.memory_full_info(), kind) / 1e6)
        except psutil.Error:
            continue
    return found


def scale_one(nodes: int) -> None:
    """One population size in its own process: prints start-up time, round time and peak memory."""
    mark = os.environ["FEDPNS_BENCH"]
    peak, over = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(1.0):
            peak = max(peak, sum(mb for _, mb in memory_of(mark, "pss").values()))

    with session():
        thread = threading.Thread(target=watch)
        thread.start()
        started, first = time.perf_counter(), []

        def on_round(record: Record) -> None:
            first.append(time.perf_counter() - started)

        e = Experiment(strategy="fedpns", dataset="mnist", nodes=nodes, fraction=10 / nodes, rounds=12)
        result = run(e, layout=Layout(actors=2), on_round=on_round)
        over.set()
        thread.join()
    seconds = statistics.median(record["seconds"] for record in result.records[3:-1])
    print(f"{first[0] - result.records[0]['seconds']:.3f} {seconds:.5f} {peak:.1f}")


def scale() -> None:
    """50 against 10,000 nodes, 10 of them drawn."""
    print("Scale: CNN-M, MNIST, 10 drawn, 2 actors: start-up, median round, peak memory of all processes")
    figures: dict[int, list[list[float]]] = {}
    for nodes in (50, 10_000, 50, 10_000):
        environment = {**os.environ, "FEDPNS_BENCH": f"scale-{nodes}-{os.getpid()}-{time.monotonic_ns()}"}
        command = [sys.executable, "-m", "benchmarks.runtime", f"--scale-one={nodes}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        figures.setdefault(nodes, []).append([float(x) for x in done.stdout.split()])
    best = {nodes: [min(column) for column in zip(*rows, strict=True)] for nodes, rows in figures.items()}
    for nodes, (startup, seconds, peak) in best.items():
        print(f"  {nodes:6,d} nodes: start-up {startup:5.1f} s, round {seconds * 1e3:6.1f} ms, memory {peak:7.0f} MB")
    few, many = best[50], best[10_000]
    print(f"  start-up x {many[0] / few[0]:.2f}, round x {many[1] / few[1]:.2f}, memory {many[2] - few[2]:+.0f} MB")


def endurance() -> None:
    """1,000 rounds: the private memory of every process and the size of the object store along the way."""
    marks = (100, 400, 700, 990)
    print("Endurance: 1,000 rounds of FedPNS, MLR, MNIST, 2 actors: private memory of each process by round, in MB")
    mark = os.environ["FEDPNS_BENCH"] = f"endurance-{os.getpid()}"
    seen: dict[int, tuple[dict[int, tuple[str, float]], float]] = {}

    def look(record: Record) -> None:
        if record["round"] in marks:
            seen[record["round"]] = memory_of(mark, "uss"), object_store()

    e = Experiment(strategy="fedpns", dataset="mnist", model="mlr", rounds=1000)
    with session(), tempfile.TemporaryDirectory() as out:
        run(e, out, layout=Layout(actors=2), on_round=look)
    print(f"  {'':28s}" + "".join(f"{t:>9d}" for t in seen))
    stayed = set.intersection(*(set(processes) for processes, _ in seen.values()))
    for pid in sorted(stayed, key=lambda pid: -seen[marks[0]][0][pid][1])[:6]:
        print(
            f"  {seen[marks[0]][0][pid][0]:28s}"
            + "".join(f"{processes[pid][1]:9.1f}" for processes, _ in seen.values())
        )
    print(f"  {'object store':28s}" + "".join(f"{store:9.1f}" for _, store in seen.values()))


def object_store() -> float:
    """MB of the object store in use."""
    resources = ray.cluster_resources(), ray.available_resources()
    total, free = (r.get("object_store_memory", 0.0) for r in resources)
    return (total - free) / 1e6


def faults() -> None:
    """A run with three killed actors and a lost machine against an undisturbed one."""
    from ray.cluster_utils import Cluster

    print("Faults: FedPNS, CNN-M, MNIST, 30 rounds, 2 raylets with 2 cores each, 4 actors")
    e = Experiment(strategy="fedpns", dataset="mnist", rounds=30)
    machine = {"num_cpus": 2, "object_store_memory": 300 * 10**6}
    cluster = Cluster(initialize_head=True, head_node_args={**machine, "include_dashboard": False})
    second = cluster.add_node(**machine)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    cluster.wait_for_nodes()
    logging.basicConfig(format="    %(message)s", stream=sys.stdout)
    logging.getLogger("fedpns_ray").setLevel(logging.INFO)  # lost actors, and those that are back

    def disturb(record: Record) -> None:
        if record["round"] in (4, 9, 14):
            actor = ray.get_actor(next(n for n in sorted(list_named_actors()) if n.endswith("node actor 0")))
            try:
                os.kill(ray.get(actor.describe.remote(), timeout=30)["pid"], signal.SIGKILL)
            except ray.exceptions.RayError:
                print("    an actor that was still away could not be killed")
        if record["round"] == 18:
            cluster.remove_node(second, allow_graceful=False)

    layout = Layout(actors=4, cpus_per_actor=1)
    results: dict[str, Any] = {"undisturbed": run(e, layout=layout)}
    results["disturbed"] = run(e, layout=layout, on_round=disturb, progress=False)
    for name, result in results.items():
        print(f"  {name:12s} weights {result.summary['weights_sha256']}")
    print(f"  {'equal' if len({r.summary['weights_sha256'] for r in results.values()}) == 1 else 'DIFFERENT'}")
    ray.shutdown()
    cluster.shutdown()


def main() -> None:
    chosen = sys.argv[1:] or ["speed", "scale", "endurance", "faults"]
    for name in chosen:
        if name.startswith("--scale-one="):
            scale_one(int(name.partition("=")[2]))
        else:
            {"speed": speed, "scale": scale, "endurance": endurance, "faults": faults}[name]()


if __name__ == "__main__":
    main()
