"""The round loop, to be read beside Algorithm 2."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import index
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.config import Experiment
from fedpns_ray.data import Population
from fedpns_ray.diagnostics import divergence, measure
from fedpns_ray.hardware import Hardware
from fedpns_ray.ledger import Ledger
from fedpns_ray.strategies.parts import Nodes, Outcome, Selection, Strategy, Updates, Vector
from fedpns_ray.streams import stream
from fedpns_ray.user_code import refused

Record = dict[str, Any]


@dataclass(frozen=True)
class Metrics:
    """Of one model on the whole test set."""

    accuracy: float
    loss: float


class Executor(Protocol):
    """The only thing that knows where nodes live."""

    test_size: int
    hardware: Hardware
    """What nodes train on."""
    spent: dict[str, float]
    """Seconds of the last call of `train`: train, evaluate (by the busiest worker) and transfer (the rest)."""

    def train(self, weights: Vector, round: int, node_ids: Sequence[int]) -> Updates:
        """Local training on these nodes; rows in the order of node ids."""
        ...

    def evaluate(self, weights: Vector) -> Callable[[], Metrics]:
        """Start the test of a model; the result may come with the next training, which needs the same weights."""
        ...

    def local_losses(
        self, weights: Vector, round: int, node_ids: Sequence[int], samples: int | None = None
    ) -> NDArray[np.float64]:
        """The model's loss on each node's own data, or on so many of its samples, drawn for this round."""
        ...

    def centralised(self, weights: Vector, round: int) -> Vector:
        """v_t: where the centralised sequence (9) gets to in a round that begins with these weights."""
        ...

    def check_loss(self, weights: Vector, samples: NDArray[np.int64]) -> float:
        """The model's mean loss on these samples of the test set."""
        ...


@dataclass
class Progress:
    """Where a run stands: with the strategy's own state, all that a checkpoint needs."""

    weights: Vector
    round: int = 0
    """Rounds done."""


def known_nodes(experiment: Experiment, population: Population, payload: int) -> Nodes:
    """What the server knows of the nodes before round 1; `payload` is the size of a model in bytes."""
    devices = experiment.build_devices(population.sizes, payload)
    return Nodes(population.sizes, population.iid, experiment.per_round, devices)


def rounds(
    experiment: Experiment, nodes: Nodes, strategy: Strategy, executor: Executor, progress: Progress
) -> Iterator[Record]:
    """Algorithm 2, from where `progress` stands; yields the record of every round.

    A round's model is tested while the next round is trained: both need the same weights. So a record comes out when
    the next training is in, and at that moment `progress` and the strategy stand at exactly the yielded round.

    An update that is not finite counts as one that did not return. A round without any finite update, or whose model or
    test is not finite, is divergence: its record says so under `diverged` and is the last one, and `progress` keeps the
    last finite model.
    """
    e, selection = experiment, strategy.selection
    untested: Untested | None = None
    for t in range(progress.round + 1, e.rounds + 1):
        weights, clock = progress.weights, Clock()
        ledger = Ledger(e, nodes, t, weights.nbytes, partial(executor.local_losses, weights))

        drawn = possible_draw(selection, selection.draw(stream(e.seed, "draw", t), ledger), nodes.count)
        returning = [node for node in drawn if not _drops_out(e, t, node)]
        draw = clock.lap()
        returned = ledger.timed(executor.train(weights, t, returning))
        if untested:
            yield untested.tested()
            if "diverged" in untested.record:
                return
        clock.lap()

        updates, broken = finite_updates(returned)
        sent = selection.sift(stream(e.seed, "sift", t), updates)
        outcome = Outcome(weights)
        if len(sent):
            outcome = strategy.aggregation.combine(weights, sent, _check_loss(e, executor, t))
            if outcome.weights.shape != weights.shape:
                problem = f"the model has the shape {outcome.weights.shape}; it must be {weights.shape}"
                raise refused(strategy.aggregation.combine, problem)
        reason = _divergence(returned, updates, weights, outcome)
        if not reason:
            outcome = replace(outcome, step=outcome.weights - weights)
            selection.learn(updates, outcome)
            progress.weights, progress.round = outcome.weights, t

        measured = measure(updates, nodes)
        phases = {"draw": draw, **executor.spent, "aggregate": clock.lap()}
        if e.centralised and not reason:
            measured["weight_divergence"] = divergence(outcome.weights, executor.centralised(weights, t))
            phases["centralised"] = clock.lap()
        record: Record = {
            "round": t,
            "test_accuracy": None,
            "test_loss": None,
            "train_loss": float(updates.losses.mean()) if len(updates) else None,
            "lr": updates.lr,
            "drawn": drawn,
            **({"returned": list(updates.node_ids)} if e.drop_probability or broken else {}),
            "labelled": list(outcome.labelled),
            "excluded": sorted([*outcome.excluded, *broken]) if broken else list(outcome.excluded),
            "aggregated": list(outcome.aggregated),
            **({"non_finite_updates": broken} if broken else {}),
            **outcome.notes,
            **selection.notes(),
            **measured,
            **ledger.entries(selection, drawn, returned, [*sent.node_ids, *([] if selection.reports else broken)]),
            "seconds": sum(phases.values()),
            "seconds_by_phase": phases,
        }
        if reason:
            yield record | {"diverged": reason}
            return
        due = t % e.evaluate_every == 0 or t == e.rounds
        untested = Untested(record, executor.evaluate(outcome.weights) if due else None)
    if untested:
        yield untested.tested()


def possible_draw(selection: Selection, drawn: Any, count: int) -> list[int]:
    """The drawn nodes in the order of their ids; refused if they are not distinct nodes of this population."""
    try:
        nodes = sorted(index(node) for node in drawn)
    except TypeError:
        raise refused(selection.draw, f"the draw gave {drawn!r:.100}; it must give node ids") from None
    wrong = [node for node, after in zip(nodes, [*nodes[1:], count], strict=True) if not 0 <= node < min(after, count)]
    if wrong:
        problem = "twice" if 0 <= wrong[0] < count else "which does not exist"
        raise refused(
            selection.draw,
            f"the draw gave node {wrong[0]}, {problem}; it must give distinct nodes between 0 and {count - 1}",
        )
    return nodes


def finite_updates(returned: Updates) -> tuple[Updates, list[int]]:
    """The updates whose every number is finite, and the nodes of the others."""
    fine = np.isfinite(returned.deltas).all(axis=1) & np.isfinite(returned.losses)
    if fine.all():
        return returned, []
    return returned.subset(np.flatnonzero(fine).tolist()), [returned.node_ids[k] for k in np.flatnonzero(~fine)]


def _divergence(returned: Updates, updates: Updates, weights: Vector, outcome: Outcome) -> str:
    """Why a round has diverged; empty if it has not."""
    if len(returned) and not len(updates):
        return "no update is finite"
    if outcome.weights is not weights and not np.isfinite(outcome.weights).all():
        return "the aggregated model is not finite"
    return ""


class Clock:
    """Seconds since the last time it was asked."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        before, self._last = self._last, time.perf_counter()
        return self._last - before


@dataclass
class Untested:
    """The record of a round whose model is still being tested."""

    record: Record
    metrics: Callable[[], Metrics] | None

    def tested(self) -> Record:
        if self.metrics:
            measured = self.metrics()
            if math.isfinite(measured.loss):
                self.record |= {"test_accuracy": measured.accuracy, "test_loss": measured.loss}
            else:
                self.record["diverged"] = "the test loss is not finite"
        return self.record


def _drops_out(experiment: Experiment, round: int, node: int) -> bool:
    """Simulated: the strategy sees only who returned."""
    q = experiment.drop_probability
    return q > 0 and stream(experiment.seed, "drop out", round, node).random() < q


def _check_loss(experiment: Experiment, executor: Executor, t: int) -> Callable[..., float]:
    """Check Loss's samples are drawn once a round: the same for every model of the round."""

    def check_loss(weights: Vector, *, samples: int, first: bool) -> float:
        size = min(samples, executor.test_size)
        if first:
            return executor.check_loss(weights, np.arange(size))
        rng = stream(experiment.seed, "check samples", t)
        return executor.check_loss(weights, rng.choice(executor.test_size, size=size, replace=False))

    return check_loss
