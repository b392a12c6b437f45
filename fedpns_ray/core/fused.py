"""Fused: the work of many runs, answered by one worker for all of them.

Runs that share shapes differ in their weights, their nodes and their learning rates alone. So their nodes train as the
rows of one cohort, and their models are tested in one pass over the test set: a GPU, which mostly waits for launches
with models as small as the paper's, is launched once instead of once per run.

On a CPU nodes train together only if `vectorize` is on: more rows would leave the cache. Models are tested together
there by converting every chunk of the test set once, and each model then computes as it does alone, to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpns_ray.core.cohorts import ROWS_MEMORY, Cohorts
from fedpns_ray.core.determinism import naming_the_remedy
from fedpns_ray.core.fused_training import fused_cohorts, train_together
from fedpns_ray.core.gpu_memory import GpuNeeds, gpu_needs, models_tested
from fedpns_ray.core.metrics import confusion_of, empty_confusion
from fedpns_ray.core.models import for_testing, memory_layout
from fedpns_ray.core.phases import phases_on
from fedpns_ray.core.testing import TEST_CHUNK, place_of
from fedpns_ray.core.training import Worker
from fedpns_ray.core.transfers import Readout
from fedpns_ray.core.work import Answer, Work

if TYPE_CHECKING:
    from fedpns_ray.data import Population, Samples


class Tested(NamedTuple):
    """What the test of one model finds, filled in chunk by chunk."""

    rows: NDArray[np.float64]
    """One per chunk: samples predicted correctly, sum of their losses."""
    predicted: list[NDArray[np.int64]] | None
    """Predictions by chunk, where metrics need them."""


class FusedWorker:
    """Answers the work of several runs, each of which has a worker of its own that could answer it alone.

    The workers must agree on device, model, batch size, loss and buffers, and on the data set that nodes hold samples
    of; all else may differ.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers, first = list(workers), workers[0]
        self._device = first._device
        for other in self._workers[1:]:
            other._data.share(first._data)
        self._cohorts: Cohorts | None = fused_cohorts(self._workers)
        self._on_gpu = self._cohorts is not None and self._device.type != "cpu"
        self._test_sets = _test_sets([worker._population for worker in self._workers])
        shape = first._population.samples.shape
        self._most_tested = models_tested(first.model, first._fit, shape, TEST_CHUNK, ROWS_MEMORY)

    @property
    def device(self) -> str:
        """cpu or cuda."""
        return self._device.type

    def training(self, run: int) -> str:
        """How the nodes of a run are trained, for the record. Where that is exact, it is called what it is alone."""
        if self._cohorts is None or not self._cohorts.size:
            return self._workers[run].training
        return f"{self._cohorts.describe()}, fused"

    def gpu_needs(self) -> GpuNeeds:
        """What all runs together need of a GPU's memory."""
        first, alone = self._workers[0], [worker.gpu_needs() for worker in self._workers]
        rows = self._cohorts.size if self._cohorts else 1
        models = min(len(self._workers), self._most_tested) if self._on_gpu else 1
        whole = gpu_needs(first._e, first._population, first.model, rows, models * TEST_CHUNK)
        return whole._replace(updates=sum(need.updates for need in alone))

    def answer(self, asked: Mapping[int, Work]) -> dict[int, Answer]:
        """The answers to what these runs ask for: training and tests together, the rest run by run."""
        if not asked:
            return {}
        with naming_the_remedy():
            return self._answer(asked)

    def _answer(self, asked: Mapping[int, Work]) -> dict[int, Answer]:
        out, phases = Readout(self._device), phases_on(self._device)
        weights = self._moved(asked)
        training = {run: work for run, work in asked.items() if work.train} if self._cohorts else {}
        trained = train_together(self._cohorts, self._workers, training, weights, out) if self._cohorts else {}
        phases.lap("train")
        testing = {run: work for run, work in asked.items() if work.test}
        tested = self._tested(testing, weights, out)
        out.read()
        phases.lap("evaluate")
        together, found = (("train", training), ("evaluate", testing)), {}
        for run, work in asked.items():
            rest = self._rest(run, work, in_cohort=run in training)
            seconds = dict(rest.seconds)
            for phase, runs in together:
                share = phases.seconds()[phase] / len(runs) if run in runs else 0.0
                seconds[phase] = seconds.get(phase, 0.0) + share
            if work.test:
                rest = self._with_test(run, work, rest, tested[run])
            found[run] = replace(rest, updates=trained[run]() if run in training else rest.updates, seconds=seconds)
        return found

    def _moved(self, asked: Mapping[int, Work]) -> dict[int, Tensor]:
        """The weights of all runs on the device, in one copy."""
        there = self._workers[0]._data.moved(np.stack([work.weights for work in asked.values()]))
        return dict(zip(asked, there.unbind(), strict=True))

    def _rest(self, run: int, work: Work, in_cohort: bool) -> Answer:
        """What a run needs beside the training and the test that it shares with others."""
        left = replace(work, train=() if in_cohort else work.train, test=())
        if not (left.train or left.own_tests or left.probe or left.centralised):
            return Answer()
        return self._workers[run].answer(left)

    # --- testing ----------------------------------------------------------------------------------------------------

    def _with_test(self, run: int, work: Work, rest: Answer, tested: Tested) -> Answer:
        confusion, samples = None, self._workers[run]._population.samples
        if tested.predicted is not None:
            confusion = empty_confusion(samples.classes)
            for chunk, predicted in zip(work.test, tested.predicted, strict=True):
                confusion += confusion_of(samples.test_y[place_of(chunk)], predicted, len(confusion))
        return replace(rest, chunks=work.test, tested=tested.rows, confusion=confusion)

    def _tested(self, asked: Mapping[int, Work], weights: Mapping[int, Tensor], out: Readout) -> dict[int, Tested]:
        """The tests of all runs; those of the same chunks of the same test set share a pass."""
        found, alike = {}, dict[tuple[tuple[int, ...], int], list[int]]()
        for run, work in asked.items():
            predicted: list[NDArray[np.int64]] | None = [] if self._workers[run]._counts else None
            found[run] = Tested(np.empty((len(work.test), 2)), predicted)
            alike.setdefault((work.test, self._test_sets[run]), []).append(run)
        for (chunks, _), runs in alike.items():
            most = self._most_tested if self._on_gpu else len(runs)
            for k in range(0, len(runs), most):
                some = runs[k : k + most]
                self._pass_over(chunks, [weights[run] for run in some], {run: found[run] for run in some}, out)
        return found

    @torch.no_grad()
    def _pass_over(
        self, chunks: Sequence[int], weights: Sequence[Tensor], into: Mapping[int, Tested], out: Readout
    ) -> None:
        """Test models, one of each of these runs, in one pass over chunks of the test set that the runs share."""
        workers = [self._workers[run] for run in into]
        first, found = workers[0], []
        test = _vectorised(first, weights) if self._on_gpu else _one_by_one(workers, weights)
        for chunk in chunks:
            x, y = first._data.test_samples(place_of(chunk))
            rows, outputs = test(memory_layout(first.model.module, x), y)
            found.append(rows)
            for tested, mine in zip(into.values(), outputs, strict=True):
                if tested.predicted is not None:
                    tested.predicted.append(np.empty(tuple(y.shape), dtype=np.int64))
                    out.add(mine.argmax(-1), tested.predicted[-1])
        for tested, rows in zip(into.values(), torch.stack(found, dim=1), strict=True):
            out.add(rows, tested.rows)


Test = Callable[[Tensor, Tensor], tuple[Tensor, Sequence[Tensor]]]
"""Samples and their labels → a row per model, as in `Tested`, and the outputs of each."""


def _one_by_one(workers: Sequence[Worker], weights: Sequence[Tensor]) -> Test:
    """Each model by itself, exactly as its own worker tests it."""
    for worker, own in zip(workers, weights, strict=True):
        worker.model.load(own)
        for_testing(worker.model.module, worker._e.buffers)

    def test(x: Tensor, y: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        rows: list[Tensor] = []
        outputs: list[Tensor] = []
        for worker in workers:
            worker.model.reset_buffers()
            outputs.append(worker.model.module(x))
            rows += worker._fit.task.tested(outputs[-1], y)
        return torch.stack(rows).view(-1, 2), outputs

    return test


def _vectorised(first: Worker, weights: Sequence[Tensor]) -> Test:
    """All models in one pass: the operators of one, and other last digits."""
    model, together = first.model, torch.stack(list(weights))
    model.reset_buffers()
    for_testing(model.module, first._e.buffers)
    own = {name: b.expand(len(together), *b.shape).clone() for name, b in model.module.named_buffers()}

    def one(weights: Tensor, own: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        outputs = model.pure_outputs(weights, own, x)
        return torch.stack(first._fit.task.tested(outputs, y)), outputs

    each = torch.func.vmap(one, in_dims=(0, 0, None, None))

    def test(x: Tensor, y: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        rows, outputs = each(together, {name: b.clone() for name, b in own.items()}, x, y)
        return rows, outputs.unbind()

    return test


def _test_sets(populations: Sequence[Population]) -> list[int]:
    """For each population, the first one with the same test set; the arrays need not be the same."""

    def same(one: Samples, other: Samples) -> bool:
        scales = (one.mean, one.deviation) == (other.mean, other.deviation)
        arrays = ((one.test_x, other.test_x), (one.test_y, other.test_y))
        return one is other or (scales and all(a is b or np.array_equal(a, b) for a, b in arrays))

    return [
        next(k for k, first in enumerate(populations) if same(first.samples, population.samples))
        for population in populations
    ]
