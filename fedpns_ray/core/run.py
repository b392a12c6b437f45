"""Run: Algorithm 2, which asks for work and is told the answers.

A run knows the science and nothing of the machine. It starts no process, writes no file and waits for nobody: a driver
calls `ask`, has the work done wherever it likes, and calls `tell`.

    while (work := run.ask()) is not None:
        record = run.tell(answer(work))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.costs import Ledger, Unanswered
from fedpns_ray.core.interfaces import Nodes, Outcome, Selection, Strategy, Updates, Vector
from fedpns_ray.core.streams import stream
from fedpns_ray.core.theory import divergence, measure
from fedpns_ray.core.user_code import refused
from fedpns_ray.core.work import Answer, Clock, Work

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

Record = dict[str, Any]
State = dict[str, NDArray[Any]]


class Evaluator(Protocol):
    """Check Loss, answered at once: a few test samples cost little, and Algorithm 1 hangs on each result."""

    @property
    def test_size(self) -> int: ...

    @property
    def test_chunks(self) -> int: ...

    def check_loss(self, weights: Vector, samples: NDArray[np.int64]) -> float:
        """The model's mean loss on these samples of the test set."""
        ...


class Drawn(NamedTuple):
    """Whom a round draws."""

    nodes: list[int]
    returning: list[int]
    """Those that do not drop out."""
    ledger: Ledger
    seconds: float


@dataclass
class Run:
    """One experiment, from where it stands; `strategy` has begun."""

    experiment: Experiment
    nodes: Nodes
    strategy: Strategy
    evaluator: Evaluator
    weights: Vector
    """w_t of the last round that is done; the initial weights before round 1."""
    round: int = 0
    """Rounds done."""
    over: bool = False
    """All rounds are done and recorded, or the run has diverged."""
    _work: Work | None = field(default=None, init=False)
    _answer: Answer | None = field(default=None, init=False)
    _untested: Record | None = field(default=None, init=False)
    """The record of the last round, whose model is still to be tested."""

    def __post_init__(self) -> None:
        self._rounds = self._algorithm_2()

    # --- the conversation -------------------------------------------------------------------------------------------

    def ask(self) -> Work | None:
        """The work that the run needs now; the same until it is told. None when the run is over."""
        if self._work is None and not self.over:
            answer, self._answer = self._answer, None
            try:
                self._work = next(self._rounds) if answer is None else self._rounds.send(answer)
            except StopIteration:
                self.over = True
        return self._work

    def tell(self, answer: Answer) -> Record | None:
        """Take the answer to what was asked; gives back the record of a round if that is whole now.

        At this moment the run stands at exactly that round: this is when to take a checkpoint.
        """
        work, self._work, self._answer = self._work, None, answer
        assert work is not None, "nothing was asked"
        if work.probe or self._untested is None:
            return None
        record, self._untested = self._untested, None
        if work.test:
            self._add_test(record, answer.tested)
        self.over = "diverged" in record or record["round"] == self.experiment.rounds
        return record

    def checkpoint(self) -> State:
        """All that `restore` needs to go on from the last record."""
        return {"weights": self.weights, "round": np.array(self.round), **self.strategy.state_dict()}

    def restore(self, state: State) -> None:
        """Before the first `ask`: stand where a checkpoint stood."""
        self.weights, self.round = state["weights"], int(state["round"])
        self.strategy.load_state_dict({key: value for key, value in state.items() if "." in key})
        self.over = self.round == self.experiment.rounds

    # --- the algorithm ----------------------------------------------------------------------------------------------

    def _algorithm_2(self) -> Generator[Work, Answer, None]:
        """To be read beside the paper.

        A round's model is tested while the next round is trained: both need the same weights. So a record comes out
        when the next training is in; a selection that must see the test before it draws says so.

        An update that is not finite counts as one that did not return. A round without any finite update, or whose
        model or test is not finite, is divergence: its record says so and is the last one; the last finite model stays.
        """
        e, (selection, _, aggregation) = self.experiment, self.strategy
        for t in range(self.round + 1, e.rounds + 1):
            weights = self.weights
            if selection.awaits_test and self._untested:
                yield Work(weights, t - 1, test=self._chunks_due())
            drawn = yield from self._draw(t)
            test = self._chunks_due() if self._untested else ()
            answer = yield Work(weights, t, train=tuple(drawn.returning), test=test, centralised=e.centralised)

            clock = Clock()
            returned = drawn.ledger.timed(answer.updates or no_updates(len(weights), e.lr_at(t)))
            updates, broken = finite_updates(returned)
            sent = selection.sift(stream(e.seed, "sift", t), updates)
            outcome = Outcome(weights)
            if len(sent):
                outcome = aggregation.combine(weights, sent, self._check_loss(t))
                _refuse_misshapen(self.strategy, outcome, weights)
            reason = divergence_of(returned, updates, weights, outcome)
            if not reason:
                outcome = replace(outcome, step=outcome.weights - weights)
                selection.learn(updates, outcome)
                self.weights, self.round = outcome.weights, t
            facts = Facts(t, drawn, returned, updates, broken, sent, outcome, answer, clock)
            self._untested = self._record(facts)
            if reason:
                self._untested["diverged"] = reason
                yield Work(weights, t)  # nothing is left to do: its record comes out as every other does
                return
        if self._untested:
            yield Work(self.weights, e.rounds, test=self._chunks_due())

    def _draw(self, t: int) -> Generator[Work, Answer, Drawn]:
        """S_t. A probe without an answer ends the draw; once answered, the same draw is made again, from its stream."""
        e, selection, seconds = self.experiment, self.strategy.selection, 0.0
        losses: dict[tuple[tuple[int, ...], int | None], NDArray[np.float64]] = {}
        while True:
            ledger, clock = Ledger(e, self.nodes, t, self.weights.nbytes, losses), Clock()
            try:
                nodes = possible_draw(selection, selection.draw(stream(e.seed, "draw", t), ledger), self.nodes.count)
            except Unanswered as question:
                ids, samples = question.node_ids, question.samples
                seconds += clock.lap()
                answer = yield Work(self.weights, t, probe=ids, probe_samples=samples)
                seconds += sum(answer.seconds.values())
                losses[ids, samples] = np.array([answer.losses[node] for node in ids])
                continue
            returning = [node for node in nodes if not _drops_out(e, t, node)]
            return Drawn(nodes, returning, ledger, seconds + clock.lap())

    def _check_loss(self, t: int) -> Callable[..., float]:
        """Check Loss's samples are drawn once a round: the same for every model of the round."""
        evaluator = self.evaluator

        def check_loss(weights: Vector, *, samples: int, first: bool) -> float:
            size = min(samples, evaluator.test_size)
            if first:
                return evaluator.check_loss(weights, np.arange(size))
            rng = stream(self.experiment.seed, "check samples", t)
            return evaluator.check_loss(weights, rng.choice(evaluator.test_size, size=size, replace=False))

        return check_loss

    # --- the record -------------------------------------------------------------------------------------------------

    def _record(self, facts: Facts) -> Record:
        """Of a round whose model is not tested yet."""
        e, selection = self.experiment, self.strategy.selection
        t, drawn, returned, updates, broken, sent, outcome, answer, clock = facts
        measured = measure(updates, self.nodes)
        if answer.centralised is not None:
            measured["weight_divergence"] = divergence(outcome.weights, answer.centralised)
        phases = {"train": 0.0, "evaluate": 0.0, "transfer": 0.0, **answer.seconds}
        after = {"centralised": phases.pop("centralised")} if "centralised" in phases else {}
        seconds = {"draw": drawn.seconds, **phases, "aggregate": clock.lap(), **after}
        return {
            "round": t,
            "test_accuracy": None,
            "test_loss": None,
            "train_loss": float(updates.losses.mean()) if len(updates) else None,
            "lr": updates.lr,
            "drawn": drawn.nodes,
            **({"returned": list(updates.node_ids)} if e.drop_probability or broken else {}),
            "labelled": list(outcome.labelled),
            "excluded": sorted([*outcome.excluded, *broken]) if broken else list(outcome.excluded),
            "aggregated": list(outcome.aggregated),
            **({"non_finite_updates": broken} if broken else {}),
            **outcome.notes,
            **selection.notes(),
            **measured,
            **drawn.ledger.entries(selection, drawn.nodes, returned, _senders(selection, sent, broken)),
            "seconds": sum(seconds.values()),
            "seconds_by_phase": seconds,
        }

    def _chunks_due(self) -> tuple[int, ...]:
        """The whole test set, if the model of the last round is to be tested."""
        t = self.round
        due = t % self.experiment.evaluate_every == 0 or t == self.experiment.rounds
        return tuple(range(self.evaluator.test_chunks)) if due else ()

    def _add_test(self, record: Record, rows: NDArray[np.float64]) -> None:
        """Sums over chunks, in float64 and in their order."""
        correct, loss = (float(total) / self.evaluator.test_size for total in np.add.reduce(rows, axis=0))
        if math.isfinite(loss):
            record |= {"test_accuracy": correct, "test_loss": loss}
            self.strategy.selection.hear(correct, loss)
        else:
            record["diverged"] = "the test loss is not finite"


class Facts(NamedTuple):
    """What is known of a round when it is over."""

    round: int
    drawn: Drawn
    returned: Updates
    updates: Updates
    broken: list[int]
    sent: Updates
    outcome: Outcome
    answer: Answer
    clock: Clock


def known_nodes(experiment: Experiment, sizes: NDArray[np.int64], iid: NDArray[np.bool_], payload: int) -> Nodes:
    """What the server knows of the nodes before round 1; `payload` is the size of a model in bytes."""
    return Nodes(sizes, iid, experiment.per_round, experiment.build_devices(sizes, payload))


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


def no_updates(parameters: int, lr: float) -> Updates:
    """Of a round from which nobody returned."""
    nobody = np.empty(0, dtype=np.int64)
    return Updates((), np.empty((0, parameters), dtype=np.float32), np.empty(0), nobody, nobody, lr)


def finite_updates(returned: Updates) -> tuple[Updates, list[int]]:
    """The updates whose every number is finite, and the nodes of the others."""
    fine = np.isfinite(returned.deltas).all(axis=1) & np.isfinite(returned.losses)
    if fine.all():
        return returned, []
    return returned.subset(np.flatnonzero(fine).tolist()), [returned.node_ids[k] for k in np.flatnonzero(~fine)]


def divergence_of(returned: Updates, updates: Updates, weights: Vector, outcome: Outcome) -> str:
    """Why a round has diverged; empty if it has not."""
    if len(returned) and not len(updates):
        return "no update is finite"
    if outcome.weights is not weights and not np.isfinite(outcome.weights).all():
        return "the aggregated model is not finite"
    return ""


def _refuse_misshapen(strategy: Strategy, outcome: Outcome, weights: Vector) -> None:
    if outcome.weights.shape != weights.shape:
        problem = f"the model has the shape {outcome.weights.shape}; it must be {weights.shape}"
        raise refused(strategy.aggregation.combine, problem)


def _senders(selection: Selection, sent: Updates, broken: list[int]) -> list[int]:
    """Who sent an update. Where nodes are chosen by what they report, a broken one is not asked for."""
    return [*sent.node_ids, *([] if selection.reports else broken)]


def _drops_out(experiment: Experiment, round: int, node: int) -> bool:
    """Simulated: the strategy sees only who returned."""
    q = experiment.drop_probability
    return q > 0 and stream(experiment.seed, "drop out", round, node).random() < q
