"""Local training and testing: one worker, one resident model, any number of nodes.

A worker's answers are pure functions of (weights, round, node): it keeps nothing from one call to the next. So nodes
can move between processes and machines, and a round can be repeated after a fault, without changing a bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpns_ray.core.interfaces import Updates, Vector
from fedpns_ray.core.local_steps import local_steps, steps_per_epoch
from fedpns_ray.core.metrics import Confusion, confusion_of
from fedpns_ray.core.models import (
    CohortModel,
    Fit,
    Gradients,
    flat_model_for,
    for_testing,
    memory_layout,
    own_randomness,
    refuse_unvectorisable,
)
from fedpns_ray.core.streams import stream, torch_seed
from fedpns_ray.core.work import Answer, Clock, Work

if TYPE_CHECKING:
    from fedpns_ray.data import Population
    from fedpns_ray.experiment import Experiment

TEST_CHUNK = 500
"""Test samples evaluated together. Fixed, so that sums do not depend on how chunks are spread over workers."""

COHORT = 64
"""The most nodes trained together: bounds the memory of the vectorised path."""


class Worker:
    """Trains nodes and tests models on one device, with one thread."""

    def __init__(self, experiment: Experiment, population: Population, device: str = "cpu") -> None:
        self._e, self._population, self._device = experiment, population, torch.device(device)
        samples = population.samples
        fit = Fit.to(samples, experiment)
        self._task = fit.task
        self.model = flat_model_for(experiment, samples, self._device)
        self.initial_weights: Vector = np.array(self.model.state.cpu().numpy())
        """w before round 1."""
        self._objective = experiment.build_strategy().objective
        self._optimizer = experiment.build_optimizer()
        self._begin_cohort: Callable[[], Gradients] | None = None
        closed = fit.task.is_cross_entropy(fit.targets) and len(self.model.state) == len(self.model.weights)
        if experiment.vectorize != "off" and closed and isinstance(self.model.module, CohortModel):
            self._begin_cohort = self._exact_gradients
        elif experiment.vectorize == "on":
            refuse_unvectorisable(experiment.model, self.model, samples.shape, fit)
            self._begin_cohort = self.model.pure_gradients

    def _exact_gradients(self) -> Gradients:
        assert isinstance(self.model.module, CohortModel)
        self.model.reset_buffers()
        return self.model.module.cohort_gradients

    @property
    def device(self) -> str:
        """cpu or cuda."""
        return self._device.type

    def answer(self, work: Work) -> Answer:
        """The answer to everything that a piece of work asks for."""
        clock, seconds = Clock(), {}
        updates = self.train(work.weights, work.round, work.train) if work.train else None
        seconds["train"] = clock.lap()
        classes = self._population.samples.classes
        confusion = np.zeros((classes, classes), dtype=np.int64) if self._e.metrics and work.test else None
        tested = self.test(work.weights, work.test, confusion)
        seconds["evaluate"] = clock.lap()
        losses: dict[int, float] = {}
        if work.probe:
            found = self.local_losses(work.weights, work.round, work.probe, work.probe_samples)
            losses = dict(zip(work.probe, found.tolist(), strict=True))
            seconds["probe"] = clock.lap()
        centralised = self.centralised(work.weights, work.round) if work.centralised else None
        if work.centralised:
            seconds["centralised"] = clock.lap()
        return Answer(updates, work.test, tested, losses, confusion, centralised, seconds)

    # --- training -----------------------------------------------------------------------------------------------

    def train(self, weights: Vector, round: int, node_ids: Sequence[int]) -> Updates:
        """tau_i steps on mini-batches of every node (4), each from the same weights."""
        ids = tuple(sorted(node_ids))
        start = self._tensor(weights)
        deltas = np.empty((len(ids), len(weights)), dtype=np.float32)
        losses = np.empty(len(ids))
        epochs = [self._epochs(round, node) for node in ids]
        with own_randomness(self._device):
            for positions in self._groups(ids, epochs):
                cohort = [ids[k] for k in positions]
                trained, loss = (self._train_node if self._begin_cohort is None else self._train_cohort)(
                    start, round, cohort, epochs[positions[0]]
                )
                deltas[positions] = (trained - start).cpu().numpy()
                losses[positions] = loss
        self._wait_for_slow_nodes(ids)
        sizes = self._population.sizes[list(ids)]
        steps = local_steps(self._e, sizes, np.array(epochs, dtype=np.int64))
        buffers = len(weights) - len(self.model.weights)
        return Updates(ids, deltas, losses, sizes, steps, self._e.lr_at(round), buffers=buffers)

    def _wait_for_slow_nodes(self, ids: Sequence[int]) -> None:
        """Simulated: a worker's nodes train one after another, so their delays add up."""
        if self._e.slow_fraction:
            shares = (stream(self._e.seed, "slow node", node=node).random() for node in ids)
            time.sleep(self._e.slow_seconds * sum(share < self._e.slow_fraction for share in shares))

    def _epochs(self, round: int, node: int) -> int:
        """E, or what the objective makes of it for this node in this round; no more than `max_steps` begin."""
        epochs = self._objective.epochs(self._e.epochs, stream(self._e.seed, "epochs", round, node))
        if not self._e.max_steps:
            return epochs
        each = int(steps_per_epoch(self._e, self._population.sizes[[node]])[0])
        return min(epochs, -(-self._e.max_steps // each))

    def _groups(self, ids: Sequence[int], epochs: Sequence[int]) -> Iterator[list[int]]:
        """Positions of nodes to train together: one by one, or in cohorts of equal size and number of epochs."""
        if self._begin_cohort is None:
            yield from ([k] for k in range(len(ids)))
            return
        alike: dict[tuple[int, int], list[int]] = {}
        for k, node in enumerate(ids):
            alike.setdefault((int(self._population.sizes[node]), epochs[k]), []).append(k)
        for group in alike.values():
            yield from (group[k : k + COHORT] for k in range(0, len(group), COHORT))

    def _orders(self, round: int, node: int, epochs: int) -> NDArray[np.int64]:
        """One row per epoch: the node's own samples, reshuffled."""
        rng, size = stream(self._e.seed, "shuffle", round, node), int(self._population.sizes[node])
        return np.stack([rng.permutation(size) for _ in range(epochs)])

    def _train_node(self, start: Tensor, round: int, cohort: list[int], epochs: int) -> tuple[Tensor, Any]:
        (node,) = cohort
        model, lr = self.model, self._e.lr_at(round)
        x, y = self._samples(node)
        torch.manual_seed(torch_seed(self._e.seed, "dropout", round, node))
        model.load(start)
        model.module.train()
        step = self._optimizer.start(model.weights, lr)
        total, steps = torch.zeros((), dtype=torch.float64, device=self._device), 0
        orders = (torch.from_numpy(order).to(self._device) for order in self._orders(round, node, epochs))
        batches = chain.from_iterable(order.split(self._e.batch_size) for order in orders)
        for batch in islice(batches, self._e.max_steps or None):
            total += model.loss_and_gradient(memory_layout(model.module, x[batch]), y[batch])
            self._objective.correct(model.gradient, model.weights, start[: len(model.weights)])
            step(model.gradient)
            steps += 1
        return model.trained(), float(total) / steps

    def _train_cohort(self, start: Tensor, round: int, cohort: list[int], epochs: int) -> tuple[Tensor, Any]:
        """Like `_train_node`, but step by step for a whole cohort: nodes with equal numbers of samples and epochs."""
        assert self._begin_cohort is not None
        gradients_of, lr = self._begin_cohort(), self._e.lr_at(round)
        own = [self._samples(node) for node in cohort]
        x, y = torch.stack([x for x, _ in own]), torch.stack([y for _, y in own])
        torch.manual_seed(torch_seed(self._e.seed, "dropout", round, cohort[0]))
        weights = start.repeat(len(cohort), 1)
        self.model.module.train()
        step = self._optimizer.start(weights, lr)
        total, steps = torch.zeros(len(cohort), dtype=torch.float64, device=self._device), 0
        orders = np.stack([self._orders(round, node, epochs) for node in cohort], axis=1)
        batches = chain.from_iterable(
            _batches(x, y, torch.from_numpy(order).to(self._device), self._e.batch_size) for order in orders
        )
        with torch.no_grad():
            for x_batch, y_batch in islice(batches, self._e.max_steps or None):
                gradients, losses = gradients_of(weights, x_batch, y_batch)
                total += losses
                self._objective.correct(gradients, weights, start)
                step(gradients)
                steps += 1
        return weights, (total / steps).cpu().numpy()

    def centralised(self, weights: Vector, round: int) -> Vector:
        """v_t (9): as many steps as a median node takes, each on the full gradient of the global loss F, no dropout.

        These are steps of plain gradient descent, whatever the nodes' own optimiser: (9) defines v so.
        """
        e, sizes = self._e, self._population.sizes
        steps, lr = int(local_steps(e, np.array([np.median(sizes)], dtype=np.int64))[0]), e.lr_at(round)
        self._load_for_testing(weights)
        for _ in range(steps):
            whole = torch.zeros_like(self.model.gradient, dtype=torch.float64)
            for some_x, some_y in self._population.pooled(TEST_CHUNK):
                x = memory_layout(self.model.module, self._features(some_x))
                self.model.loss_and_gradient(x, torch.tensor(some_y, device=self._device))
                whole += self.model.gradient * (len(some_y) / int(sizes.sum()))
            self.model.weights.add_(whole.to(torch.float32), alpha=-lr)
        return np.array(self.model.weights.cpu().numpy())

    # --- testing ------------------------------------------------------------------------------------------------

    @property
    def test_size(self) -> int:
        return len(self._population.samples.test_y)

    @property
    def test_chunks(self) -> int:
        return -(-self.test_size // TEST_CHUNK)

    def test(self, weights: Vector, chunks: Sequence[int], confusion: Confusion | None = None) -> NDArray[np.float64]:
        """One row per chunk of the test set: samples classified correctly, sum of their losses.

        What is predicted is added to `confusion`.
        """
        s = self._population.samples
        self._load_for_testing(weights)
        rows = []
        for chunk in chunks:
            at = slice(chunk * TEST_CHUNK, (chunk + 1) * TEST_CHUNK)
            rows.append(self._correct_and_loss(s.test_x[at], s.test_y[at], confusion))
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def check_loss(self, weights: Vector, samples: NDArray[np.int64]) -> float:
        """The mean loss on some test samples (Check Loss)."""
        s = self._population.samples
        self._load_for_testing(weights)
        return self._correct_and_loss(s.test_x[samples], s.test_y[samples])[1] / len(samples)

    def local_losses(
        self, weights: Vector, round: int, node_ids: Sequence[int], samples: int | None = None
    ) -> NDArray[np.float64]:
        """F_i(w) of nodes on their own data, or an estimate from `samples` of it, redrawn each round."""
        self._load_for_testing(weights)
        probed = (self._probed(round, node, samples) for node in node_ids)
        return np.array([self._correct_and_loss(x, y)[1] / len(y) for x, y in probed])

    def _probed(self, round: int, node: int, samples: int | None) -> tuple[NDArray[Any], NDArray[Any]]:
        x, y = self._population.own(node)
        if samples is None or samples >= len(y):
            return x, y
        some = stream(self._e.seed, "probe", round, node).choice(len(y), samples, replace=False)
        return x[some], y[some]

    def _load_for_testing(self, weights: Vector) -> None:
        self.model.load(self._tensor(weights))
        for_testing(self.model.module, self._e.buffers)

    @torch.no_grad()
    def _correct_and_loss(
        self, x: NDArray[Any], y: NDArray[np.int64], confusion: Confusion | None = None
    ) -> tuple[float, float]:
        labels = torch.tensor(y, device=self._device)
        self.model.reset_buffers()
        outputs = self.model.module(memory_layout(self.model.module, self._features(x)))
        if confusion is not None:
            confusion += confusion_of(y, outputs.argmax(-1).cpu().numpy(), len(confusion))
        return self._task.tested(outputs, labels)

    # --- tensors ------------------------------------------------------------------------------------------------

    def _tensor(self, weights: Vector) -> Tensor:
        return torch.tensor(weights, device=self._device)

    def _features(self, x: NDArray[Any]) -> Tensor:
        """Normalised where they are used: images stay uint8 until here."""
        tensor = torch.tensor(x, device=self._device)
        if tensor.dtype == torch.uint8:
            s = self._population.samples
            return tensor.to(torch.float32).mul_(1 / (255 * s.deviation)).sub_(s.mean / s.deviation)
        return tensor

    def _samples(self, node: int) -> tuple[Tensor, Tensor]:
        x, y = self._population.own(node)
        return self._features(x), torch.tensor(y, device=self._device)


def _batches(x: Tensor, y: Tensor, at: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """An epoch of a cohort, batch by batch; full batches are gathered in one go."""
    m, d = y.shape[:2]
    rows = at + d * torch.arange(m, device=at.device).unsqueeze(1)
    whole = d - d % size

    def gather(steps: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        x_steps = x.flatten(0, 1).index_select(0, steps.flatten()).view(*steps.shape, *x.shape[2:])
        y_steps = y.flatten(0, 1).index_select(0, steps.flatten()).view(*steps.shape, *y.shape[2:])
        return zip(x_steps.unbind(), y_steps.unbind(), strict=True)

    if whole:
        yield from gather(rows[:, :whole].unflatten(1, (-1, size)).transpose(0, 1))
    if whole < d:
        yield from gather(rows[:, whole:].unsqueeze(0))


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread, as in every worker process: no contention, and a fixed order of summation."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
