"""What fusing runs gains on one core: `python -m benchmarks.fused [RUNS] [REPEATS]`.

CPU seconds of the same work, each run alone and all together, alternating, so that whatever else the machine does
disturbs both alike. No data set is needed: the images are random.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks.gpu.scenes import SCENES
from fedpns_ray.core.fused import FusedWorker
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.core.work import Work

TEST_SAMPLES = 10_000
"""As MNIST has."""


def measured(model: str, runs: int, repeats: int, train: bool, vectorize: str) -> tuple[float, float, list[float]]:
    """Milliseconds per run, alone and fused, and the ratio of every repeat."""
    scene = SCENES[model]._replace(test_samples=TEST_SAMPLES)
    population = scene.population()
    workers = [Worker(scene.experiment(seed=1 + k, vectorize=vectorize), population) for k in range(runs)]
    together, chunks = FusedWorker(workers), tuple(range(workers[0].test_chunks))
    nodes = tuple(range(scene.nodes)) if train else ()
    asked = {k: Work(worker.initial_weights, 1, train=nodes, test=chunks) for k, worker in enumerate(workers)}

    def alone() -> None:
        for k, work in asked.items():
            workers[k].answer(work)

    pairs = [(spent(alone, runs), spent(lambda: together.answer(asked), runs)) for _ in range(repeats + 1)][1:]
    by_itself, fused = (statistics.median(some) for some in zip(*pairs, strict=True))
    return by_itself, fused, sorted(one / other for one, other in pairs)


CASES = (
    ("the test of MLR", "mlr", False, "auto"),
    ("a round of MLR, tests fused (auto)", "mlr", True, "auto"),
    ("a round of MLR, training fused, too (vectorize on)", "mlr", True, "on"),
)


def products(runs: int, repeats: int) -> None:
    """The product of a chunk of images with the weights of MLR models: one after another, joined, and in a batch."""
    generator = torch.Generator().manual_seed(0)
    x, w, b = (torch.rand(*shape, generator=generator) for shape in ((500, 784), (runs, 10, 784), (runs, 10)))
    ways = {
        "one after another": lambda: torch.stack([F.linear(x, w[k], b[k]) for k in range(runs)]),
        "one for all": lambda: F.linear(x, w.flatten(0, 1), b.flatten()).view(500, runs, 10).transpose(0, 1),
        "one batch": lambda: torch.baddbmm(b.unsqueeze(1), x.expand(runs, 500, 784), w.transpose(1, 2)),
    }
    expected = ways["one after another"]()
    print(f"\n| product of 500 images with {runs} models | CPU µs per model | the same bits |\n| --- | ---: | --- |")
    for name, product in ways.items():
        least = min(spent(product, runs) for _ in range(10 * repeats))
        print(f"| {name} | {1e3 * least:.0f} | {'yes' if torch.equal(product(), expected) else 'no'} |")


def spent(work: Callable[[], object], runs: int) -> float:
    """CPU milliseconds per run."""
    began = time.process_time()
    work()
    return 1e3 * (time.process_time() - began) / runs


def main(runs: int = 16, repeats: int = 7) -> None:
    print(f"{runs} runs, medians of {repeats} repeats\n")
    print(
        "| CPU ms per run | each alone | fused | alone / fused: median (least to most) |\n| --- | ---: | ---: | ---: |"
    )
    with one_thread():
        for name, model, train, vectorize in CASES:
            alone, fused, ratios = measured(model, runs, repeats, train, vectorize)
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            print(f"| {name} | {alone:.1f} | {fused:.1f} | {spread} |", flush=True)
        products(runs, repeats)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
