"""Local training and testing: one worker, one resident model, any number of nodes.

A worker's answers are pure functions of (weights, round, node): it keeps nothing from one call to the next. So nodes
can move between processes and machines, and a round can be repeated after a fault, without changing a bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpns_ray.core.cohorts import NO_PLACES, Group, batch_sizes, cohorts_for
from fedpns_ray.core.compression.sending import compressed
from fedpns_ray.core.determinism import naming_the_remedy
from fedpns_ray.core.device_data import Source
from fedpns_ray.core.drawn_samples import drawn_batches, gradient_norms, probabilities
from fedpns_ray.core.gpu_memory import GpuNeeds, gpu_needs
from fedpns_ray.core.interfaces import NOTHING, Rows, Updates, Vector
from fedpns_ray.core.local_steps import local_steps, steps_per_epoch
from fedpns_ray.core.metrics import TEST_SET, empty_confusion
from fedpns_ray.core.models import memory_layout, own_randomness
from fedpns_ray.core.node_states import next_states, shaped, states_of, vectors_kept
from fedpns_ray.core.phases import phases_on
from fedpns_ray.core.streams import stream, torch_seed
from fedpns_ray.core.testing import TEST_CHUNK, Tester
from fedpns_ray.core.transfers import MOST_INDEXED, Later, Readout, in_blocks, sent
from fedpns_ray.core.work import Answer, Work

if TYPE_CHECKING:
    from fedpns_ray.data import Population
    from fedpns_ray.experiment import Experiment

COHORT = 64
"""The most nodes trained together on a CPU, where that is exact: bounds the memory of the vectorised path."""


Drawn = Sequence[tuple[Tensor, Tensor]]
"""Batches of samples that were drawn: where they are in their source, and the factor of each."""


class Local(NamedTuple):
    """The nodes of one piece of work while they train: a row each, in the order of their ids."""

    ids: tuple[int, ...]
    start: Tensor
    """The weights that all of them start from."""
    epochs: list[int]
    shift: Tensor | None
    """What is added to every gradient."""
    own: Rows
    """What they have kept for the objective, and because it was not sent."""
    unsent: Rows
    deltas: Rows
    """Filled in as nodes are trained; so are their losses."""
    losses: NDArray[np.float64]


class Worker(Tester):
    """Trains nodes and tests models on one device, with one thread."""

    def __init__(self, experiment: Experiment, population: Population, device: str = "cpu") -> None:
        super().__init__(experiment, population, device)
        self._objective = experiment.build_strategy().objective
        self._optimizer, self._compression = experiment.build_optimizer(), experiment.build_compression()
        self._counts = any(metric.of == TEST_SET for metric in experiment.build_metrics())
        alone = self._objective.draws_samples  # by its own gradients, one by one
        self._cohorts = None if alone else cohorts_for(experiment, population, self.model, self._fit)

    @property
    def training(self) -> str:
        """How nodes are trained, for the record: one by one, or together."""
        return self._cohorts.describe() if self._cohorts else "one by one"

    def gpu_needs(self) -> GpuNeeds:
        """What this worker needs of a GPU's memory."""
        rows = self._cohorts.size or COHORT if self._cohorts else 1
        return gpu_needs(self._e, self._population, self.model, rows, TEST_CHUNK)

    def answer(self, work: Work) -> Answer:
        """The answer to everything that a piece of work asks for."""
        self._sent = {}
        try:
            with naming_the_remedy():
                return self._answer(work)
        finally:
            self._sent = None

    def _answer(self, work: Work) -> Answer:
        out, phases = Readout(self._device), phases_on(self._device)
        updates = self._trained(work, out) if work.train else None
        phases.lap("train")
        confusion = empty_confusion(self._population.samples.classes) if work.test and self._counts else None
        tested = self._tested(work.weights, work.test, confusion, out)
        out.read()
        accuracies = dict(zip(work.own_tests, self.own_accuracies(work.weights, work.own_tests).tolist(), strict=True))
        phases.lap("evaluate")
        losses: dict[int, float] = {}
        if work.probe:
            found = self.local_losses(work.weights, work.round, work.probe, work.probe_samples)
            losses = dict(zip(work.probe, found.tolist(), strict=True))
            phases.lap("probe")
        centralised = self.centralised(work.weights, work.round) if work.centralised else None
        if work.centralised:
            phases.lap("centralised")
        done = None if updates is None else updates()
        return Answer(done, work.test, tested(), losses, confusion, accuracies, centralised, phases.seconds())

    # --- training -----------------------------------------------------------------------------------------------

    def train(
        self,
        weights: Vector,
        round: int,
        node_ids: Sequence[int],
        states: Mapping[int, Vector] | None = None,
        shared: Vector = NOTHING,
    ) -> Updates:
        """tau_i steps on mini-batches of every node (4), each from the same weights."""
        work = Work(weights, round, tuple(node_ids), states=dict(states or {}), shared=shared)
        return self._now(lambda out: self._trained(work, out))

    def _trained(self, work: Work, out: Readout) -> Later[Updates]:
        local = self.begun(work, self._tensor(work.weights))
        ids, start, round = local.ids, local.start, work.round
        train = self._train_cohort if self._cohorts else self._train_node
        with own_randomness(self._device):
            for rows, group in self._groups(ids, local.epochs, round):
                shifts = None if local.shift is None else torch.stack([local.shift[k] for k in group.rows])
                trained, loss = train(start, round, group, shifts)
                out.add((trained - start)[: len(rows)], local.deltas, rows)
                out.add(loss[: len(rows)], local.losses, rows)
        self._wait_for_slow_nodes(ids)
        return lambda: self.ended(work, local)

    def begun(self, work: Work, start: Tensor) -> Local:
        """What the nodes of a piece of work begin with; `start` are its weights on the device."""
        ids = tuple(sorted(work.train))
        own, unsent = self._kept(ids, work.states)
        shift = self._shift(own, work.shared) if self._objective.keeps_states else None
        epochs = [self._epochs(work.round, node) for node in ids]
        deltas = np.empty((len(ids), len(start)), dtype=np.float32)
        return Local(ids, start, epochs, shift, own, unsent, deltas, np.empty(len(ids)))

    def ended(self, work: Work, local: Local) -> Updates:
        """What the nodes send, once all of them are trained."""
        sizes = self._population.sizes[list(local.ids)]
        steps = local_steps(self._e, sizes, np.array(local.epochs, dtype=np.int64))
        lr, buffers = self._e.lr_at(work.round), len(local.start) - len(self.model.weights)
        found = Updates(local.ids, local.deltas, local.losses, sizes, steps, lr, buffers=buffers)
        states = next_states(self._objective, local.own, work.shared, found)
        found, rest = compressed(self._compression, local.unsent, found, self.model.tensors)
        kept = np.concatenate([states, rest], axis=1)
        return replace(found, states=kept) if kept.size else found

    def _kept(self, ids: Sequence[int], states: Mapping[int, Vector]) -> tuple[Rows, Rows]:
        """What nodes have kept since their last round: for the objective, and because it was not sent."""
        parameters = len(self.model.weights)
        rows = states_of(ids, states, vectors_kept(self._objective, self._compression) * parameters)
        own = int(self._objective.keeps_states) * parameters
        return rows[:, :own], rows[:, own:]

    def _shift(self, states: Rows, shared: Vector) -> Tensor | None:
        found = self._objective.shift(states, shared)
        return None if found is None else self._data.moved(shaped(self._objective.shift, found, states))

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

    def _groups(self, ids: Sequence[int], epochs: Sequence[int], round: int) -> Iterator[tuple[list[int], Group]]:
        """Rows of nodes to train together, and what they train on; on a GPU, moved together as far as memory allows."""
        most = 0 if self._device.type == "cpu" else MOST_INDEXED
        planned = (self._planned(ids, rows, epochs[rows[0]], round) for rows in self._alike(ids, epochs))
        for block in in_blocks(planned, lambda one: one[2].nbytes, most):
            for (rows, group, _), at in zip(block, sent([at for _, _, at in block], self._device), strict=True):
                yield rows, group._replace(at=at)

    def _planned(
        self, ids: Sequence[int], rows: list[int], epochs: int, round: int
    ) -> tuple[list[int], Group, NDArray[np.int64]]:
        padded = self._cohorts.padded(rows) if self._cohorts else rows
        nodes = [ids[k] for k in padded]
        orders = np.stack([self._orders(round, node, epochs) for node in nodes], axis=1)
        at = np.take_along_axis(self._data.places(nodes)[None], orders, axis=2)
        return rows, Group(nodes, padded, NO_PLACES), at

    def _alike(self, ids: Sequence[int], epochs: Sequence[int]) -> Iterator[list[int]]:
        """Rows of nodes to train together: one by one, or in cohorts of equal size and number of epochs."""
        if self._cohorts is None:
            yield from ([k] for k in range(len(ids)))
            return
        alike: dict[tuple[int, int], list[int]] = {}
        for k, node in enumerate(ids):
            alike.setdefault((int(self._population.sizes[node]), epochs[k]), []).append(k)
        most = self._cohorts.size or COHORT
        for group in alike.values():
            yield from (group[k : k + most] for k in range(0, len(group), most))

    def _orders(self, round: int, node: int, epochs: int) -> NDArray[np.int64]:
        """One row per epoch: the node's own samples, reshuffled."""
        rng, size = stream(self._e.seed, "shuffle", round, node), int(self._population.sizes[node])
        return np.stack([rng.permutation(size) for _ in range(epochs)])

    def _train_node(self, start: Tensor, round: int, group: Group, shift: Tensor | None) -> tuple[Tensor, Tensor]:
        (node,) = group.nodes
        model, lr = self.model, self._e.lr_at(round)
        drawn = self._drawn_batches(start, round, group) if self._objective.draws_samples else None
        torch.manual_seed(torch_seed(self._e.seed, "dropout", round, node))
        model.load(start)
        model.module.train()
        step, parameters = self._optimizer.start(model.weights, lr), start[: len(model.weights)]
        ordered = partial(memory_layout, model.module)  # of many batches at once; views of one pixel deep lose it again
        total, steps = torch.zeros(1, dtype=torch.float64, device=self._device), 0
        for x, y, factors in self._node_batches(group, drawn, ordered):
            total += model.loss_and_gradient(x, y, factors)
            self._objective.correct(model.gradient, model.weights, parameters)
            if shift is not None:
                model.gradient.add_(shift[0])
            step(model.gradient)
            steps += 1
        return model.trained().unsqueeze(0), total / steps

    def _node_batches(
        self, group: Group, drawn: Drawn | None, ordered: Callable[[Tensor], Tensor]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """The batches of one node, and the factors of their samples if these were drawn."""
        source = self._data.source(group.nodes)
        if drawn is None:
            for x, y in self._batches(source, group.at, ordered):
                yield ordered(x[0]), y[0], None
            return
        for places, factors in drawn:
            x, y = source.gather(places)
            yield ordered(self._data.features(x)), y, factors

    def _drawn_batches(self, start: Tensor, round: int, group: Group) -> Drawn:
        """As many batches, of samples drawn by the norms of their gradients under w, and the factors of the samples."""
        (node,), places = group.nodes, group.at[0, 0]
        x, y = self._data.source(group.nodes).gather(places)
        self.model.load(start)
        self.model.module.eval()
        features = memory_layout(self.model.module, self._data.features(x))
        p = probabilities(self._objective, gradient_norms(self.model, features, y))
        sizes = list(islice(batch_sizes(len(places), self._e.batch_size, len(group.at)), self._e.max_steps or None))
        drawn = drawn_batches(stream(self._e.seed, "samples", round, node), p, sizes)
        moved = self._data.moved
        return [(places[moved(at)], moved(factors.astype(np.float32))) for at, factors in drawn]

    def _train_cohort(self, start: Tensor, round: int, group: Group, shift: Tensor | None) -> tuple[Tensor, Tensor]:
        """Like `_train_node`, but step by step for a whole cohort: nodes with equal numbers of samples and epochs."""
        assert self._cohorts is not None
        seeds = [torch_seed(self._e.seed, "dropout", round, node) for node in group.nodes]
        sizes = batch_sizes(group.at.shape[2], self._e.batch_size, len(group.at))
        gradients_of, lr = self._cohorts.begin(seeds, islice(sizes, self._e.max_steps or None)), self._e.lr_at(round)
        weights = start.repeat(len(group.nodes), 1)
        self.model.module.train()
        step = self._optimizer.start(weights, lr)
        total, steps = torch.zeros(len(group.nodes), dtype=torch.float64, device=self._device), 0
        with torch.no_grad():
            for x, y in self._batches(self._data.source(group.nodes), group.at):
                gradients, losses = gradients_of(weights, x, y)
                total += losses
                self._objective.correct(gradients, weights, start)
                if shift is not None:
                    gradients.add_(shift)
                step(gradients)
                steps += 1
        return weights, total / steps

    def _batches(
        self, source: Source, at: Tensor, layout: Callable[[Tensor], Tensor] = lambda x: x
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of all epochs, [node, k]; those of several steps are gathered together."""
        size, (_, nodes, d) = self._e.batch_size, at.shape
        whole = d - d % size
        together = self._data.together(nodes * size)

        def gathered(steps: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
            x, y = source.gather(steps.flatten())
            shaped = (found.unflatten(0, steps.shape).unbind() for found in (layout(self._data.features(x)), y))
            return zip(*shaped, strict=True)

        def of_epoch(own: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
            full = own[:, :whole].unflatten(1, (-1, size)).transpose(0, 1)
            for steps in full.split(together) if whole else ():
                yield from gathered(steps)
            if whole < d:
                yield from gathered(own[:, whole:].unsqueeze(0))

        return islice(chain.from_iterable(map(of_epoch, at)), self._e.max_steps or None)

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
                x = memory_layout(self.model.module, self._data.features(self._data.moved(some_x)))
                self.model.loss_and_gradient(x, self._data.moved(some_y))
                whole += self.model.gradient * (len(some_y) / int(sizes.sum()))
            self.model.weights.add_(whole.to(torch.float32), alpha=-lr)
        return np.array(self.model.weights.cpu().numpy())
