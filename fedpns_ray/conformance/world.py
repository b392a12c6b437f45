"""A population of a few nodes whose updates are made up, and a strategy that lives in it: Algorithm 2 without training.

Every number comes from a named stream, so a counterexample is found again by its world and round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fedpns_ray.core.devices import Devices, Resources, log_normal
from fedpns_ray.core.drawing import possible_draw
from fedpns_ray.core.interfaces import Nodes, Outcome, Strategy, Updates, Vector
from fedpns_ray.core.streams import stream
from fedpns_ray.errors import InputError, one_line
from fedpns_ray.registry import assemble, parameters_of

PARAMETERS, STEPS, LR, EPOCHS = 6, 5, 0.1, 3
LAST_LAYER = (2, 2)
"""The made-up model is one linear layer of two outputs and two inputs, with biases."""


class RefusedError(Exception):
    """The strategy does not run in this world, and says so."""


@dataclass(frozen=True)
class World:
    """Nodes with their data sizes, devices, losses and updates; nothing is trained."""

    count: int = 6
    per_round: int = 2
    kind: Literal["varied", "equal", "zero"] = "varied"
    """Nodes that differ in everything; that differ in nothing; whose updates and losses are 0."""
    asked: int = 4
    """What a whole-number parameter becomes that is refused at this size, such as `candidates`."""
    drop_out: float = 0.0
    here: int | None = None
    """Nodes that are available in a round, in turn; None: all of them."""
    has_devices: bool = True
    seed: int = 1

    def __str__(self) -> str:
        here = "" if self.here is None else f", {self.here} available"
        return f"{self.count} nodes, {self.per_round} per round, {self.kind}{here}"

    @property
    def nodes(self) -> Nodes:
        sizes = np.full(self.count, 100)
        speed = uplink = np.full(self.count, 100.0)
        if self.kind == "varied":
            sizes = stream(self.seed, "conformance sizes").integers(20, 200, self.count)
            speed, uplink = log_normal(self.seed, self.count, 100.0, 1000.0, 0.5)
        devices = Devices(speed, uplink, sizes.astype(float), 4 * PARAMETERS, self.seed) if self.has_devices else None
        return Nodes(sizes, np.arange(self.count) % 2 == 0, self.per_round, devices, PARAMETERS, LAST_LAYER)

    def losses(self, round: int) -> NDArray[np.float64]:
        if self.kind == "varied":
            return stream(self.seed, "conformance losses", round).exponential(size=self.count) + 0.1
        return np.full(self.count, 1.0 if self.kind == "equal" else 0.0)

    def deltas(self, round: int) -> NDArray[np.float32]:
        shape = (self.count, PARAMETERS)
        if self.kind == "varied":
            rng = stream(self.seed, "conformance updates", round)
            return (rng.standard_normal(shape) * np.exp(rng.standard_normal((self.count, 1)))).astype(np.float32)
        return np.full(shape, 0.5 if self.kind == "equal" else 0.0, dtype=np.float32)

    def updates(self, round: int, node_ids: Sequence[int]) -> Updates:
        """What these nodes return in a round, those that do not drop out."""
        here = [node for node in sorted(node_ids) if not self._drops_out(round, node)]
        steps = np.full(len(here), STEPS)
        known = self.nodes
        updates = Updates(tuple(here), self.deltas(round)[here], self.losses(round)[here], known.sizes[here], steps, LR)
        if known.devices is None:
            return updates
        needs = known.devices.resources(round)
        return replace(updates, upload=needs.upload[here], seconds=(needs.train + needs.upload)[here])

    def next_rounds(self, round: int) -> NDArray[np.int64]:
        """For every node, the first round from this one on in which it is available."""
        turns = (np.arange(self.count) + round) % self.count
        return round + np.where(turns < (self.count if self.here is None else self.here), 0, self.count - turns)

    def _drops_out(self, round: int, node: int) -> bool:
        return stream(self.seed, "conformance drop-outs", round, node).random() < self.drop_out


@dataclass
class Asked:
    """The probe of one round; counts what was asked."""

    world: World
    round: int
    answers: int = 0
    asked: set[int] = field(default_factory=set)

    def __call__(self, node_ids: Sequence[int], samples: int | None = None) -> NDArray[np.float64]:
        at = np.array(node_ids, dtype=np.int64)
        answering = np.isin(at, self.available)
        self.answers += int(answering.sum())
        self.asked |= set(at[answering].tolist())
        return np.where(answering, self.world.losses(self.round)[at], np.nan)

    @property
    def probed(self) -> dict[int, float]:
        losses = self.world.losses(self.round)
        return {node: float(losses[node]) for node in sorted(self.asked)}

    def resources(self) -> Resources:
        return self.world.nodes.needed_devices("this selection").resources(self.round)

    @property
    def available(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.next_available() == self.round)

    def next_available(self) -> NDArray[np.int64]:
        return self.world.next_rounds(self.round)


@dataclass(frozen=True)
class Played:
    """A round as it was played."""

    round: int
    drawn: list[int]
    updates: Updates
    sent: Updates
    step: Vector
    probe: Asked
    aggregated: tuple[int, ...] = ()


def begun(parts: Mapping[str, str], world: World) -> Strategy:
    """The strategy of these parts before its first round in this world, with defaults that fit it."""
    takers, changed = parameters_of(parts), dict[str, int]()
    while True:
        try:
            strategy = assemble(parts, changed)
        except ValidationError as error:
            raise InputError("strategy", problem=f"has parameters without defaults ({one_line(error)})") from error
        try:
            strategy.begin(world.nodes)
        except InputError as error:
            taker = takers.get(error.field)
            if taker is None or error.field in changed or taker.part.model_fields[taker.field].annotation is not int:
                raise RefusedError(str(error)) from error
            changed[error.field] = world.asked
        else:
            return strategy


@dataclass
class Game:
    """A strategy in a world, and how far it has come."""

    strategy: Strategy
    world: World
    weights: Vector = field(default_factory=lambda: np.full(PARAMETERS, 0.5, dtype=np.float32))
    round: int = 0
    states: dict[int, NDArray[np.float32]] = field(default_factory=dict)

    def draw(self, t: int, rng: np.random.Generator | None = None) -> tuple[list[int], Asked]:
        probe, selection = Asked(self.world, t), self.strategy.selection
        drawn = selection.draw(rng or stream(self.world.seed, "draw", t), probe)
        here = set(probe.available.tolist())  # as in a run, only available nodes train, no matter which are drawn
        return [node for node in possible_draw(selection, drawn, self.world.count) if node in here], probe

    def sent(self, t: int, drawn: Sequence[int], rng: np.random.Generator | None = None) -> tuple[Updates, Updates]:
        """The updates that returned, and those of them that were sent."""
        updates = self.world.updates(t, drawn)
        if self.strategy.objective.keeps_states and len(updates):
            shared, own = self.strategy.objective.broadcast(), self._states(updates.node_ids)
            updates = replace(updates, states=self.strategy.objective.next_states(own, shared, updates))
        return updates, self.strategy.selection.sift(rng or stream(self.world.seed, "sift", t), updates)

    def _states(self, node_ids: Sequence[int]) -> NDArray[np.float32]:
        nothing = np.zeros(PARAMETERS, dtype=np.float32)
        return np.array([self.states.get(node, nothing) for node in node_ids])

    def play(self, rounds: int = 1) -> list[Played]:
        """The next rounds, in the order of Algorithm 2."""
        return [self._round() for _ in range(rounds)]

    def _round(self) -> Played:
        t, (selection, objective, aggregation, server) = self.round + 1, self.strategy
        drawn, probe = self.draw(t)
        updates, sent = self.sent(t, drawn)
        outcome = Outcome(self.weights)
        if len(sent):
            outcome = aggregation.combine(self.weights, sent, check_loss)
            outcome = replace(outcome, weights=server.move(self.weights, outcome.weights))
        outcome = replace(outcome, step=outcome.weights - self.weights, probed=probe.probed)
        selection.appraise(stream(self.world.seed, "appraise", t), self.weights, sent, check_loss)
        selection.learn(updates, outcome)
        if sent.states is not None and len(sent):
            objective.learn(self._states(sent.node_ids), sent.states)
            self.states |= dict(zip(sent.node_ids, sent.states, strict=True))
        self.weights, self.round = outcome.weights, t
        loss = check_loss(self.weights)
        selection.hear(1 / (1 + loss), loss)
        assert outcome.step is not None
        return Played(t, drawn, updates, sent, outcome.step, probe, outcome.aggregated)


def check_loss(weights: Vector, *, samples: int = 0, first: bool = False) -> float:
    """A loss that some models lower and others raise."""
    return float(np.square(weights.astype(np.float64) - np.arange(PARAMETERS)).mean())
