"""Run: Algorithm 2, which asks for work and is told the answers.

A run knows the science and nothing about the machine. It starts no process, writes no file and never waits: a driver
calls `ask`, has the work done wherever it likes, and calls `tell`.

    while (work := run.ask()) is not None:
        round = run.tell(answer(work))
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.clipping import clip
from fedpns_ray.core.compression.interfaces import FLOAT, Tensors
from fedpns_ray.core.costs import Costs, Ledger, Unanswered
from fedpns_ray.core.devices import devices_of
from fedpns_ray.core.drawing import Drawn, drops_out, possible_draw, reachable
from fedpns_ray.core.finite import divergence_of, finite_updates, no_updates
from fedpns_ray.core.interfaces import Nodes, Outcome, Rows, Selection, Strategy, Updates, Vector
from fedpns_ray.core.metrics import MOST_TESTED, NODES, TEST_SET, measured
from fedpns_ray.core.node_states import NodeStates, states_of, vectors_kept
from fedpns_ray.core.server_step import served
from fedpns_ray.core.spacing import evenly_spaced
from fedpns_ray.core.streams import stream
from fedpns_ray.core.theory import Gradients, divergence, measure
from fedpns_ray.core.user_code import refused
from fedpns_ray.core.work import Answer, Clock, Work

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

State = Mapping[str, NDArray[Any]]
"""What a checkpoint holds. Arrays may be made, or read, when they are asked for."""


class Evaluator(Protocol):
    """Check Loss, answered at once: a few test samples cost little, and Algorithm 1 needs each result to continue."""

    @property
    def test_size(self) -> int: ...

    @property
    def test_chunks(self) -> int: ...

    def check_loss(self, weights: Vector, samples: NDArray[np.int64]) -> float:
        """The model's mean loss on these samples of the test set."""
        ...


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
        self._metrics = self.experiment.build_metrics()
        self._rounds = self._algorithm_2()
        self._vectors = vectors_kept(self.strategy.objective, self.experiment.build_compression())
        self._states = NodeStates(self._vectors * self.nodes.parameters)

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
        own = {"weights": self.weights, "round": np.array(self.round), **self.strategy.state_dict()}
        return ChainMap(own, self._states)  # type: ignore[arg-type]

    def restore(self, state: State) -> None:
        """Before the first `ask`: continue from a checkpoint."""
        self.weights, self.round = state["weights"], int(state["round"])
        self.strategy.load_state_dict({key: state[key] for key in state if "." in key})
        self._states.restore(state)
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
                yield self._test_of(weights, t - 1)
            drawn = yield from self._draw(t)
            test = self._test_of(weights, t) if self._untested else Work(weights, t)
            work = replace(test, train=tuple(drawn.returning), centralised=e.centralised)
            answer = yield self._with_states(work)

            clock = Clock()
            returned = drawn.ledger.timed(answer.updates or no_updates(len(weights), e.lr_at(t)))
            updates, broken = finite_updates(returned)
            updates, clipped = clip(updates, e.clip_updates) if e.clip_updates else (updates, None)
            with clock:
                gathered, sent = selection.gathers(), selection.sift(stream(e.seed, "sift", t), updates)
            outcome = Outcome(weights)
            if len(sent):
                outcome = aggregation.combine(weights, sent, self._check_loss(t))
                _refuse_misshapen(self.strategy, outcome, weights)
            reason = divergence_of(returned, updates, weights, outcome)
            if len(sent) and not reason:
                outcome, reason = served(server, weights, outcome, sent.buffers)
            if not reason:
                outcome = replace(outcome, step=outcome.weights - weights, probed=drawn.ledger.probed)
                with clock:
                    selection.appraise(stream(e.seed, "appraise", t), weights, sent, self._check_loss(t))
                    selection.learn(updates, outcome)
                if sent.states is not None:
                    self._keep_states(sent.node_ids, sent.states)
                self.weights, self.round = outcome.weights, t
            facts = Facts(t, drawn, returned, updates, broken, clipped, sent, outcome, answer, clock, gathered)
            self._untested = self._account(facts)
            if reason:
                self._untested.diverged = reason
                yield Work(weights, t)  # nothing is left to do: the round is completed like any other
                return
        if self._untested:
            yield self._test_of(self.weights, e.rounds)

    def _draw(self, t: int) -> Generator[Work, Answer, Drawn]:
        """Draw S_t. An unanswered probe ends the draw; once answered, the same draw is repeated from its stream."""
        e, selection, seconds = self.experiment, self.strategy.selection, 0.0
        losses: dict[tuple[tuple[int, ...], int | None], NDArray[np.float64]] = {}
        while True:
            ledger, clock = Ledger(e, self.nodes, t, self.weights.nbytes, losses, self._along), Clock()
            try:
                drawn = selection.draw(stream(e.seed, "draw", t), ledger) if len(ledger.available) else ()
                nodes = reachable(possible_draw(selection, drawn, self.nodes.count), ledger)
            except Unanswered as question:
                ids, samples = question.node_ids, question.samples
                seconds += clock.lap()
                answer = yield Work(self.weights, t, probe=ids, probe_samples=samples)
                seconds += sum(answer.seconds.values())
                losses[ids, samples] = np.array([answer.losses[node] for node in ids])
                continue
            returning = [node for node in nodes if not drops_out(e, t, node)]
            return Drawn(nodes, returning, ledger, seconds + clock.lap())

    def _with_states(self, work: Work) -> Work:
        """The work with what its nodes have kept, if nodes keep anything."""
        if not self._vectors:
            return work
        return replace(work, states=self._states.of(work.train), shared=self.strategy.objective.broadcast())

    def _keep_states(self, node_ids: tuple[int, ...], after: Rows) -> None:
        objective, parameters = self.strategy.objective, self.nodes.parameters
        if objective.keeps_states:
            before = states_of(node_ids, self._states.of(node_ids), after.shape[1])
            objective.learn(before[:, :parameters], after[:, :parameters])
        self._states.keep(node_ids, after)

    @property
    def _along(self) -> int:
        """Bytes that the objective sends with the model to each drawn node, and that come back with its update."""
        return self.strategy.objective.sent_along * self.nodes.parameters * self.weights.itemsize

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
        t, drawn, returned, updates, broken, clipped, sent, outcome, answer, clock, gathered = facts
        selection, centralised = self.strategy.selection, answer.centralised
        if self.strategy.aggregation.over_the_air:  # neither bytes nor time for what the air adds up
            returned = replace(returned, message_bytes=np.zeros(len(returned), dtype=np.int64))
        gradients = measure(updates, self.nodes)
        apart = divergence(outcome.weights, centralised) if centralised is not None else None
        phases = {"train": 0.0, "evaluate": 0.0, "transfer": 0.0, **answer.seconds}
        after = {"centralised": phases.pop("centralised")} if "centralised" in phases else {}
        senders = _senders(selection, updates if gathered else sent, broken)
        seconds = {"draw": drawn.seconds, **phases, "select": clock.within, "aggregate": clock.lap() - clock.within}
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
            costs=drawn.ledger.costs(selection, drawn.nodes, returned, senders),
            seconds=seconds | after,
        )

    def _test_of(self, weights: Vector, t: int) -> Work:
        """The whole test set, and nodes where metrics need them, if the model of the last round is to be tested."""
        if self.round % self.experiment.evaluate_every and self.round != self.experiment.rounds:
            return Work(weights, t)
        per_node = any(metric.of == NODES for metric in self._metrics)
        nodes = tuple(evenly_spaced(self.nodes.count, MOST_TESTED).tolist()) if per_node else ()
        return Work(weights, t, test=tuple(range(self.evaluator.test_chunks)), own_tests=nodes)

    def _add_test(self, round: Round, answer: Answer) -> None:
        """Add the test result to a round, summed over chunks in float64 and in their order."""
        correct, loss = (float(total) / self.evaluator.test_size for total in np.add.reduce(answer.tested, axis=0))
        if math.isfinite(loss):
            round.accuracy, round.loss = None if math.isnan(correct) else correct, loss
            own = np.array([answer.own_accuracies[node] for node in sorted(answer.own_accuracies)])
            round.notes |= measured(self._metrics, {TEST_SET: answer.confusion, NODES: own})
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
    gathered: bool
    """Whether every trained node sent its update, for the server to choose from."""


def known_nodes(
    experiment: Experiment,
    sizes: NDArray[np.int64],
    iid: NDArray[np.bool_],
    tensors: Tensors,
    buffers: int = 0,
    last_layer: tuple[int, int] | None = None,
) -> Nodes:
    """What the server knows about the nodes before round 1; `tensors` and so many averaged buffers make a model."""
    e, parameters = experiment, sum(map(math.prod, tensors))
    along = e.build_strategy().objective.sent_along * parameters + buffers
    sent = e.build_compression().expected_bytes(tensors) + FLOAT * along
    return Nodes(sizes, iid, e.per_round, devices_of(e, sizes, sent), parameters, last_layer, seed=e.seed)


def _refuse_misshapen(strategy: Strategy, outcome: Outcome, weights: Vector) -> None:
    if not isinstance(outcome, Outcome):
        raise refused(strategy.aggregation.combine, f"it returned {outcome!r:.100}; it must return an Outcome")
    if outcome.weights.shape != weights.shape:
        problem = f"the model has the shape {outcome.weights.shape}; it must be {weights.shape}"
        raise refused(strategy.aggregation.combine, problem)


def _senders(selection: Selection, sent: Updates, broken: list[int]) -> list[int]:
    """The nodes that sent an update. Where nodes are chosen by their reports, a broken update is not asked for."""
    return [*sent.node_ids, *([] if selection.reports else broken)]
