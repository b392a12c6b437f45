"""What a round asks of a GPU, counted on a device that is only pretended: `python -m benchmarks.gpu.budgets`.

`BUDGETS` are the most that a test allows; the table shows what is needed now.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from benchmarks.gpu.counting import Counter
from benchmarks.gpu.pretended import pretended_device
from benchmarks.gpu.scenes import SCENES, Scene
from fedpns_ray.core.fused import FusedWorker
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.core.work import Work


class Counts(NamedTuple):
    """Of a round with a full test, after the first one."""

    per_step: int
    """Launches of training by the steps of a cohort."""
    training: int
    """Launches of all training."""
    test: int
    """Launches of the test, per chunk of 500 samples."""
    sent: int
    """Copies to the device."""
    waits: int
    """Times that the host waits for the device."""


BUDGETS = {
    "mlr": Counts(per_step=17, training=170, test=15, sent=2, waits=1),
    "cnn-m": Counts(per_step=62, training=620, test=22, sent=3, waits=1),
    "cnn-c": Counts(per_step=67, training=670, test=25, sent=2, waits=1),
    "resnet18-gn": Counts(per_step=1040, training=1040, test=85, sent=2, waits=1),
}


def counts(scene: Scene, device: str) -> tuple[str, Counts]:
    """How nodes train there, and what a round asks of the device."""
    worker = Worker(scene.experiment(), scene.population(), device)
    nodes, chunks, w = tuple(range(scene.nodes)), tuple(range(worker.test_chunks)), worker.initial_weights
    worker.answer(Work(w, 1, train=nodes, test=chunks[:1]))  # data are moved, and dropout is looked at
    found = []
    for work in (Work(w, 2, train=nodes, test=chunks), Work(w, 2, test=chunks)):
        with Counter(device) as counter:
            worker.answer(work)
        found.append(counter)
    both, test = found
    training, per_chunk = both.launches - test.launches, round(test.launches / len(chunks))
    return worker.training, Counts(training // scene.max_steps, training, per_chunk, both.sent, both.waits)


class Fused(NamedTuple):
    """Launches of a round with a full test, for so many runs."""

    runs: int
    alone: int
    """Each run by itself, its nodes in cohorts of its own: as often as one of them, counted."""
    fused: int

    @property
    def share(self) -> float:
        return self.fused / self.alone


FUSED = ("mlr", "cnn-m", "cnn-c")
"""The models whose runs are counted together."""
FUSED_RUNS, MOST_FUSED = 16, 0.1
"""How many runs, and the largest share of the launches that they may take."""


def fused_counts(scene: Scene, device: str, runs: int = FUSED_RUNS, rates: int = 1) -> Fused:
    """What a round of many runs, with other seeds and so many different learning rates, asks of the device."""
    population, lrs = scene.population(), [0.01 * (1 + k * rates // runs) for k in range(runs)]
    workers = [Worker(scene.experiment(seed=1 + k, lr=lr), population, device) for k, lr in enumerate(lrs)]
    nodes, chunks = tuple(range(scene.nodes)), tuple(range(workers[0].test_chunks))
    together, found = FusedWorker(workers), []

    def asked(t: int, count: int) -> dict[int, Work]:
        some = enumerate(workers[:count])
        return {k: Work(worker.initial_weights, t, train=nodes, test=chunks) for k, worker in some}

    for count, answer in ((1, lambda works: workers[0].answer(works[0])), (runs, together.answer)):
        answer(asked(1, count))  # data are moved, and dropout is looked at
        with Counter(device) as counter:
            answer(asked(2, count))
        found.append(counter.launches)
    alone, fused = found
    return Fused(runs, runs * alone, fused)


def main(names: list[str]) -> None:
    print("| model | nodes train | launches per step | per round of training | per chunk of the test | sent | waits |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    with one_thread(), pretended_device() as device:
        for name in names or SCENES:
            training, found = counts(SCENES[name], device)
            print(f"| {name} | {training} | {' | '.join(f'{number:,}' for number in found)} |", flush=True)
        print("\n| model | runs | learning rates | launches, each alone | fused | share |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for name in [name for name in names or SCENES if name in FUSED]:
            for rates in (1, FUSED_RUNS):
                runs, alone, fused = together = fused_counts(SCENES[name], device, rates=rates)
                print(f"| {name} | {runs} | {rates} | {alone:,} | {fused:,} | {together.share:.3f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
