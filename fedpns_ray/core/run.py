"""Run: Algorithm 2, which asks for work and is told the answers.

A run knows the science and nothing about the machine. It starts no process, writes no file and never waits: a driver
calls `ask`, has the work done wherever it likes, and calls `tell`.

    while (work := run.ask()) is not None:
        round = run.tell(answer(work))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.clipping import clip
from fedpns_ray.core.costs import Costs, Ledger, Unanswered
from fedpns_ray.core.finite import divergence_of, finite_updates, no_updates
from fedpns_ray.core.interfaces import Nodes, Outcome, Selection, Strategy, Updates, Vector
from fedpns_ray.core.metrics import measured
from fedpns_ray.core.server_step import served
from fedpns_ray.core.streams import stream
from fedpns_ray.core.theory import Gradients, divergence, measure
from fedpns_ray.core.user_code import refused
from fedpns_ray.core.work import Answer, Clock, Work

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

State = dict[str, NDArray[Any]]


class Evaluator(Protocol):
    """Check Loss, answered at once: a few test samples cost little, and Algorithm 1 needs each result to continue."""

    @property
    def test_size(self) -> int: ...

    @property
    def test_chunks(self) -> int: ...

    def check_loss(self, weights: Vector, samples: NDArray[np.int64]) -> float:
        """The model's mean loss on these samples of the test set."""
        ...


class Drawn(NamedTuple):
    """The draw of a round."""

    nodes: list[int]
    returning: list[int]
    """The drawn nodes that do not drop out."""
    ledger: Ledger
    seconds: float


@dataclass
class Round:
    """What happened in a round, in terms of the science. `fedpns_ray.records` gives it its form on disk."""

    number: int
    lr: float
    drawn: list[int]
    returned: list[int]
    """Nodes whose finite update came back."""
    labelled: list[int]
    excluded: list[int]
    """Nodes excluded by the aggregation, or because their update was not finite."""
    aggregated: list[int]
    non_finite: list[int]
    """Nodes whose update was not finite."""
    clipped: list[int] | None
    """Nodes whose update was scaled down; None where updates are not clipped."""
    train_loss: float | None
    notes: dict[str, Any]
    """What the parts add, under the keys that they declare."""
    gradients: Gradients | None
    weight_divergence: float | None
    """||w_t - v_t||, if the centralised sequence is followed."""
    costs: Costs
    seconds: dict[str, float]
    """Time spent, by phase."""
    accuracy: float | None = None
    """Test accuracy of the round's model; None if it was not tested, or where nothing is right or wrong."""
    loss: float | None = None
    diverged: str = ""
    """Why the run diverged in this round; empty if it did not."""


@dataclass
class Run:
    """One experiment and how far it has come. Its `strategy` must have been started (`begin`)."""

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
    _untested: Round | None = field(default=None, init=False)
    """The last round, while its model is still to be tested."""

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

    def tell(self, answer: Answer) -> Round | None:
        """Take the answer to what was asked; returns a round once it is complete.

        At that moment the run is exactly at the end of that round: this is when to take a checkpoint.
        """
        work, self._work, self._answer = self._work, None, answer
        assert work is not None, "nothing was asked"
        if work.probe or self._untested is None:
            return None
        round, self._untested = self._untested, None
        if work.test:
            self._add_test(round, answer)
        self.over = bool(round.diverged) or round.number == self.experiment.rounds
        return round

    def checkpoint(self) -> State:
        """All that `restore` needs to continue after the last complete round."""
        return {"weights": self.weights, "round": np.array(self.round), **self.strategy.state_dict()}

    def restore(self, state: State) -> None:
        """Before the first `ask`: continue from a checkpoint."""
        self.weights, self.round = state["weights"], int(state["round"])
        self.strategy.load_state_dict({key: value for key, value in state.items() if "." in key})
        self.over = self.round == self.experiment.rounds

    # --- the algorithm ----------------------------------------------------------------------------------------------

    def _algorithm_2(self) -> Generator[Work, Answer, None]:
        """Algorithm 2, to be read side by side with the paper.

        A round's model is tested while the next round trains, since both need the same weights. So a round is
        complete when the next training has been answered; a selection that needs the test before it draws says so.

        An update that is not finite counts as one that did not return. A round without any finite update, or whose
        model or test is not finite, has diverged: it says so and is the last one; the last finite model is kept.
        """
        e, (selection, _, aggregation, server) = self.experiment, self.strategy
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
            updates, clipped = clip(updates, e.clip_updates) if e.clip_updates else (updates, None)
            sent = selection.sift(stream(e.seed, "sift", t), updates)
            outcome = Outcome(weights)
            if len(sent):
                outcome = aggregation.combine(weights, sent, self._check_loss(t))
                _refuse_misshapen(self.strategy, outcome, weights)
            reason = divergence_of(returned, updates, weights, outcome)
            if len(sent) and not reason:
                outcome, reason = served(server, weights, outcome, sent.buffers)
            if not reason:
                outcome = replace(outcome, step=outcome.weights - weights)
                selection.learn(updates, outcome)
                self.weights, self.round = outcome.weights, t
            facts = Facts(t, drawn, returned, updates, broken, clipped, sent, outcome, answer, clock)
            self._untested = self._account(facts)
            if reason:
                self._untested.diverged = reason
                yield Work(weights, t)  # nothing is left to do: the round is completed like any other
                return
        if self._untested:
            yield Work(self.weights, e.rounds, test=self._chunks_due())

    def _draw(self, t: int) -> Generator[Work, Answer, Drawn]:
        """Draw S_t. An unanswered probe ends the draw; once answered, the same draw is repeated from its stream."""
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
        """Check Loss for round t: its samples are the same for every model of the round."""
        evaluator = self.evaluator

        def check_loss(weights: Vector, *, samples: int, first: bool) -> float:
            size = min(samples, evaluator.test_size)
            if first:
                return evaluator.check_loss(weights, np.arange(size))
            rng = stream(self.experiment.seed, "check samples", t)
            return evaluator.check_loss(weights, rng.choice(evaluator.test_size, size=size, replace=False))

        return check_loss

    # --- the account ------------------------------------------------------------------------------------------------

    def _account(self, facts: Facts) -> Round:
        """The account of a round whose model has not been tested yet."""
        t, drawn, returned, updates, broken, clipped, sent, outcome, answer, clock = facts
        selection, centralised = self.strategy.selection, answer.centralised
        gradients = measure(updates, self.nodes)
        apart = divergence(outcome.weights, centralised) if centralised is not None else None
        phases = {"train": 0.0, "evaluate": 0.0, "transfer": 0.0, **answer.seconds}
        after = {"centralised": phases.pop("centralised")} if "centralised" in phases else {}
        seconds = {"draw": drawn.seconds, **phases, "aggregate": clock.lap(), **after}
        return Round(
            number=t,
            lr=updates.lr,
            drawn=drawn.nodes,
            returned=list(updates.node_ids),
            labelled=list(outcome.labelled),
            excluded=sorted([*outcome.excluded, *broken]) if broken else list(outcome.excluded),
            aggregated=list(outcome.aggregated),
            non_finite=broken,
            clipped=clipped,
            train_loss=float(updates.losses.mean()) if len(updates) else None,
            notes={**outcome.notes, **selection.notes()},
            gradients=gradients,
            weight_divergence=apart,
            costs=drawn.ledger.costs(selection, drawn.nodes, returned, _senders(selection, sent, broken)),
            seconds=seconds,
        )

    def _chunks_due(self) -> tuple[int, ...]:
        """The whole test set, if the model of the last round is to be tested."""
        t = self.round
        due = t % self.experiment.evaluate_every == 0 or t == self.experiment.rounds
        return tuple(range(self.evaluator.test_chunks)) if due else ()

    def _add_test(self, round: Round, answer: Answer) -> None:
        """Add the test result to a round, summed over chunks in float64 and in their order."""
        correct, loss = (float(total) / self.evaluator.test_size for total in np.add.reduce(answer.tested, axis=0))
        if math.isfinite(loss):
            round.accuracy, round.loss = None if math.isnan(correct) else correct, loss
            if answer.confusion is not None:
                round.notes |= measured(self.experiment.build_metrics(), answer.confusion)
            self.strategy.selection.hear(correct, loss)
        else:
            round.diverged = "the test loss is not finite"


class Facts(NamedTuple):
    """What the loop knows about a round once it is over."""

    round: int
    drawn: Drawn
    returned: Updates
    updates: Updates
    broken: list[int]
    clipped: list[int] | None
    sent: Updates
    outcome: Outcome
    answer: Answer
    clock: Clock


def known_nodes(
    experiment: Experiment, sizes: NDArray[np.int64], iid: NDArray[np.bool_], payload: int, buffers: int = 0
) -> Nodes:
    """What the server knows about the nodes before round 1; a model is `payload` bytes, with so many buffers in it."""
    parameters = payload // np.dtype(np.float32).itemsize - buffers
    return Nodes(sizes, iid, experiment.per_round, experiment.build_devices(sizes, payload), parameters)


def possible_draw(selection: Selection, drawn: Any, count: int) -> list[int]:
    """The drawn nodes in the order of their ids; refused if they are not distinct nodes of this population."""
    try:
        nodes = sorted(index(node) for node in drawn)
    except TypeError:
        raise refused(selection.draw, f"the draw returned {drawn!r:.100}; it must return node ids") from None
    wrong = [node for node, after in zip(nodes, [*nodes[1:], count], strict=True) if not 0 <= node < min(after, count)]
    if wrong:
        problem = "twice" if 0 <= wrong[0] < count else "which does not exist"
        raise refused(
            selection.draw,
            f"the draw returned node {wrong[0]}, {problem}; it must return distinct nodes between 0 and {count - 1}",
        )
    return nodes


def _refuse_misshapen(strategy: Strategy, outcome: Outcome, weights: Vector) -> None:
    if outcome.weights.shape != weights.shape:
        problem = f"the model has the shape {outcome.weights.shape}; it must be {weights.shape}"
        raise refused(strategy.aggregation.combine, problem)


def _senders(selection: Selection, sent: Updates, broken: list[int]) -> list[int]:
    """The nodes that sent an update. Where nodes are chosen by their reports, a broken update is not asked for."""
    return [*sent.node_ids, *([] if selection.reports else broken)]


def _drops_out(experiment: Experiment, round: int, node: int) -> bool:
    """Whether a node drops out of a round. Simulated: the strategy only sees which nodes returned."""
    q = experiment.drop_probability
    return q > 0 and stream(experiment.seed, "drop out", round, node).random() < q
