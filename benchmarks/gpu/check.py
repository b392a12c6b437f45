"""What a user with one GPU runs in five minutes: `make gpu-check`. One page, to be pasted into an issue.

Correctness against the CPU, the same bits twice and however nodes are dealt, launches, speed, and fractions of a GPU on
Ray. Exit code 0 if all holds, 1 if not, 2 if there is no GPU. `--device cpu` tries the program itself: cohorts on a
CPU, and a GPU that only Ray believes in.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import ray
import torch

from benchmarks.gpu.budgets import BUDGETS, counts
from benchmarks.gpu.scenes import SCENES, Scene
from fedpns_ray import Experiment, InputError, __version__, run
from fedpns_ray.core.interfaces import Updates
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.core.work import Work
from fedpns_ray.runtime.layout import Layout

TOLERANCE = 1e-3
"""Of the norm of an update, after two steps."""
FRACTIONS = (1.0, 0.5, 0.25)
Line = tuple[bool, str]
"""Whether it holds, and a row of a table."""


def trained_on(scene: Scene, device: str, nodes: tuple[int, ...], **more: object) -> Updates:
    worker = Worker(scene.experiment(max_steps=2, **more), scene.population(), device)
    return worker.train(worker.initial_weights, 1, nodes)


def correctness(scene: Scene, device: str) -> Line:
    """The cohort on the GPU against one node after another on the CPU."""
    nodes = tuple(range(scene.nodes))
    found, expected = trained_on(scene, device, nodes, vectorize="on"), trained_on(scene, "cpu", nodes, vectorize="off")
    apart = np.linalg.norm(found.deltas - expected.deltas, axis=1) / np.linalg.norm(expected.deltas, axis=1)
    holds = bool(apart.max() <= TOLERANCE)
    return holds, f"| {scene.model} | {apart.max():.1e} | {TOLERANCE:.0e} | {_verdict(holds)} |"


def determinism(scene: Scene, device: str) -> Line:
    """The same bits in another worker, and with the nodes dealt to several."""
    nodes = tuple(range(scene.nodes))
    first, second = (trained_on(scene, device, nodes, vectorize="on").deltas for _ in range(2))
    parts = (trained_on(scene, device, part, vectorize="on") for part in (nodes[:1], nodes[1:]))
    dealt = np.concatenate([part.deltas for part in parts])
    twice, dealings = np.array_equal(first, second), np.array_equal(first, dealt)
    return twice and dealings, f"| {scene.model} | {_verdict(twice)} | {_verdict(dealings)} |"


def launches(scene: Scene, device: str) -> Line:
    """Counted on this device; its own kernels may differ from those that the budgets were counted with."""
    how, found = counts(scene, device)
    holds = found.waits <= BUDGETS[scene.model].waits or device == "cpu"
    numbers = " | ".join(f"{now} of {most}" for now, most in zip(found, BUDGETS[scene.model], strict=True))
    return holds, f"| {scene.model} | {how} | {numbers} |"


def speed(scene: Scene, device: str) -> Line:
    """Seconds of a round with a test: the second of two."""
    found = []
    for where, vectorize in ((device, "auto"), (device, "off"), ("cpu", "auto")):
        worker = Worker(scene.experiment(vectorize=vectorize), scene.population(), where)
        for t in (1, 2):
            began = time.perf_counter()
            chunks = tuple(range(worker.test_chunks))
            worker.answer(Work(worker.initial_weights, t, train=tuple(range(scene.nodes)), test=chunks))
        found.append(time.perf_counter() - began)
    numbers = " | ".join(f"{1e3 * seconds:.1f} ms" for seconds in found)
    return True, f"| {scene.model} | {numbers} | {found[2] / found[0]:.1f} times |"


def fractions(device: str) -> Iterator[Line]:
    """Runs on Ray with actors on shares of one GPU: the weights must be equal."""
    e = Experiment(dataset="mnist", rounds=5, strategy="fedavg")
    try:
        e.build_dataset().load()
    except InputError:
        e = Experiment(model="mlr", rounds=5, strategy="fedavg")  # its data are made, not downloaded
    here = {"address": "local", "include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(num_cpus=max(4, os.cpu_count() or 4), num_gpus=1, **here)  # never a Ray that is there already
    digests = set()
    try:
        for share in FRACTIONS:
            layout = Layout(actors=round(1 / share), gpus_per_actor=share, cpu_fallback=device == "cpu")
            result = run(e, layout=layout, progress=False)
            digests.add(result.summary.weights_sha256)
            seconds, holds = result.records[-1].seconds, len(digests) == 1
            names = f"{result.summary.gpu or result.summary.cpu} | {result.summary.training}"
            yield (
                holds,
                f"| {e.model} | {share:g} | {round(1 / share)} | {names} | {seconds:.2f} s | {_verdict(holds)} |",
            )
    finally:
        ray.shutdown()


def _verdict(holds: bool) -> str:
    return "yes" if holds else "**no**"


SECTIONS: tuple[tuple[str, str, Callable[[Scene, str], Line]], ...] = (
    ("Correct: the distance of updates from the CPU's", "model | found | allowed | holds", correctness),
    ("Deterministic: the same bits", "model | twice | however nodes are dealt", determinism),
    (
        "Few launches: found, of the budget",
        "model | nodes train | per step | training | chunk | sent | waits",
        launches,
    ),
    ("Fast: a round with a test", "model | GPU | GPU, one by one | CPU | faster than the CPU", speed),
)


def page(device: str, models: list[str]) -> bool:
    """Print the page; whether everything holds."""
    gpu = torch.cuda.get_device_name() if device == "cuda" else "no GPU: this tries the program itself"
    print(
        f"# GPU check\n\n{gpu}; torch {torch.__version__}, CUDA {torch.version.cuda}, fedpns-ray {__version__}, ",
        end="",
    )
    print(f"Python {platform.python_version()}, {platform.system()}")
    held = []
    with one_thread():
        for title, columns, check in SECTIONS:
            _table(title, columns)
            for name in models:
                holds, row = check(SCENES[name], device)
                held.append(holds)
                print(row, flush=True)
    _table("Fractions of one GPU, on Ray", "model | share | actors | on | nodes train | last round | same bits")
    for holds, row in fractions(device):
        held.append(holds)
        print(row, flush=True)
    print(f"\n{'All of it holds.' if all(held) else 'Something does not hold: see above.'}")
    return all(held)


def _table(title: str, columns: str) -> None:
    print(f"\n## {title}\n\n| {columns} |\n|{' --- |' * (columns.count('|') + 1)}", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--models", nargs="+", choices=list(SCENES), default=list(SCENES))
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print("no GPU: torch sees no CUDA device here; --device cpu tries the program itself", file=sys.stderr)
        return 2
    return 0 if page(chosen.device, chosen.models) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
