"""The nodes of many runs, trained as the rows of one cohort."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice, zip_longest
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpns_ray.core.cohorts import ROWS_MEMORY, Cohorts, batch_sizes
from fedpns_ray.core.device_data import Source
from fedpns_ray.core.gpu_memory import activations, row_bytes
from fedpns_ray.core.interfaces import Updates
from fedpns_ray.core.models import own_randomness
from fedpns_ray.core.optimizers import Step
from fedpns_ray.core.streams import torch_seed
from fedpns_ray.core.training import COHORT, Local, Worker
from fedpns_ray.core.transfers import Later, Readout, sent
from fedpns_ray.core.work import Work


class Training(NamedTuple):
    """One run that trains."""

    worker: Worker
    work: Work
    local: Local

    @property
    def lr(self) -> float:
        return self.worker._e.lr_at(self.work.round)


class Share(NamedTuple):
    """The rows of one run in a cohort."""

    run: Training
    rows: list[int]
    """Which of the run's nodes they are; copies that fill up the cohort repeat the last one."""
    at: slice
    """Where they are in the cohort."""
    kept: int
    """How many of them are not copies."""


def fused_cohorts(workers: Sequence[Worker]) -> Cohorts | None:
    """How the nodes of all runs train together; None: each run's nodes train as they do alone."""
    first = workers[0]
    alone = [worker._cohorts for worker in workers if worker._cohorts is not None]
    if len(alone) < len(workers) or (first.device == "cpu" and first._e.vectorize != "on"):
        return None
    if not alone[0].size:
        return alone[0]
    each = activations(first.model, first._fit, first._population.samples.shape)
    most = ROWS_MEMORY // row_bytes(first.model, first._e.batch_size, each)
    wanted = sum(cohorts.size for cohorts in alone)
    return replace(alone[0], size=max(1, min(wanted, most)))


def train_together(
    cohorts: Cohorts,
    workers: Sequence[Worker],
    asked: Mapping[int, Work],
    weights: Mapping[int, Tensor],
    out: Readout,
) -> dict[int, Later[Updates]]:
    """The updates of all nodes that these runs ask for, a row of weights and a learning rate each (4)."""
    found = {run: Training(workers[run], work, workers[run].begun(work, weights[run])) for run, work in asked.items()}
    with own_randomness(workers[0]._device):
        for shares in _cohorts_of(list(found.values()), cohorts):
            _train(cohorts, shares, out)
    for run in found.values():
        run.worker._wait_for_slow_nodes(run.local.ids)
    return {name: _ended(run) for name, run in found.items()}


def _ended(run: Training) -> Later[Updates]:
    return lambda: run.worker.ended(run.work, run.local)


def _cohorts_of(runs: Sequence[Training], cohorts: Cohorts) -> Iterator[list[Share]]:
    """Nodes that take equal steps, together as far as the rows of a cohort go; run by run."""
    alike: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for k, run in enumerate(runs):
        sizes = run.worker._population.sizes
        for row, node in enumerate(run.local.ids):
            key = int(sizes[node]), run.local.epochs[row], run.worker._e.max_steps or 0
            alike.setdefault(key, []).append((k, row))
    most = cohorts.size or COHORT
    for rows in alike.values():
        for first in range(0, len(rows), most):
            some = rows[first : first + most]
            yield _shares(runs, some, cohorts.size - len(some) if cohorts.size else 0)


def _shares(runs: Sequence[Training], rows: Sequence[tuple[int, int]], copies: int) -> list[Share]:
    shares, begin = [], 0
    for k, some in groupby(rows, key=lambda row: row[0]):
        mine = [row for _, row in some]
        kept, end = len(mine), begin + len(mine)
        if end == len(rows):
            mine, end = mine + mine[-1:] * copies, end + copies
        shares.append(Share(runs[k], mine, slice(begin, end), kept))
        begin = end
    return shares


def _train(cohorts: Cohorts, shares: Sequence[Share], out: Readout) -> None:
    """All steps of one cohort; what is found goes to the runs that it belongs to."""
    first = shares[0].run.worker
    e, device = first._e, first._device
    source, at = _samples(shares)
    sizes = batch_sizes(at.shape[2], e.batch_size, len(at))
    gradients_of = cohorts.begin(_seeds(shares), islice(sizes, e.max_steps or None))
    starts = torch.cat([share.run.local.start.expand(len(share.rows), -1) for share in shares])
    weights = starts.clone()
    cohorts.model.module.train()
    moves = _moves(weights, shares)
    total, steps = torch.zeros(len(weights), dtype=torch.float64, device=device), 0
    with torch.no_grad():
        for x, y in first._batches(source, at):
            gradients, losses = gradients_of(weights, x, y)
            total += losses
            for share in shares:
                share.run.worker._objective.correct(gradients[share.at], weights[share.at], share.run.local.start)
                if (shift := share.run.local.shift) is not None:
                    gradients[share.at].add_(torch.stack([shift[row] for row in share.rows]))
            for some, step in moves:
                step(gradients[some])
            steps += 1
    deltas, means = weights - starts, total / steps
    for share in shares:
        rows = share.rows[: share.kept]
        mine = slice(share.at.start, share.at.start + share.kept)
        out.add(deltas[mine], share.run.local.deltas, rows)
        out.add(means[mine], share.run.local.losses, rows)


def _seeds(shares: Sequence[Share]) -> list[int]:
    """Of each row's dropout: a node drops the same units in every run with its seed, as it does alone."""
    return [
        torch_seed(share.run.worker._e.seed, "dropout", share.run.work.round, share.run.local.ids[row])
        for share in shares
        for row in share.rows
    ]


def _moves(weights: Tensor, shares: Sequence[Share]) -> list[tuple[slice, Step]]:
    """The steps of the optimisers: one for neighbouring runs with the same optimiser at the same learning rate."""
    found: list[tuple[slice, Step]] = []
    begin = 0
    for share, then in zip_longest(shares, shares[1:]):
        mine = share.run.worker._optimizer, share.run.lr
        if then is not None and (then.run.worker._optimizer, then.run.lr) == mine:
            continue
        rows = slice(begin, share.at.stop)
        found.append((rows, mine[0].start(weights[rows], mine[1])))
        begin = share.at.stop
    return found


def _samples(shares: Sequence[Share]) -> tuple[Source, Tensor]:
    """Samples among which are those of all rows, and where: [epoch, row, k] as in a group of one run."""
    sources: list[Source] = []
    places, begin = [], 0
    for share in shares:
        worker, local, round = share.run.worker, share.run.local, share.run.work.round
        nodes, epochs = [local.ids[row] for row in share.rows], local.epochs[share.rows[0]]
        orders = [worker._orders(round, node, epochs) for node in nodes]
        source = worker._data.source(nodes)
        if not sources or source.x is not sources[-1].x:
            begin += len(sources[-1].x) if sources else 0
            sources.append(source)
        places.append(begin + np.take_along_axis(worker._data.places(nodes)[None], np.stack(orders, axis=1), axis=2))
    (at,) = sent([np.concatenate(places, axis=1)], shares[0].run.worker._device)
    return Source.joined(sources), at
