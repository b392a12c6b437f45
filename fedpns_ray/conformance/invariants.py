"""The invariants. A check returns if the strategy keeps it, and raises with a counterexample if it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.conformance.enumeration import ImproperError, distribution
from fedpns_ray.conformance.world import EPOCHS, PARAMETERS, Game, Played, World, begun
from fedpns_ray.core.interfaces import Updates
from fedpns_ray.core.streams import stream

Parts = Mapping[str, str]
WORLDS = (World(), World(per_round=6, asked=6), World(5, 3, "equal", asked=5), World(5, 2, "zero", asked=3))
TINY = (World(3, 2, asked=3), World(3, 1, seed=2, asked=3), World(3, 2, "equal", asked=3), World(3, 2, "zero", asked=3))
"""Worlds so small that every draw can be enumerated; all nodes are candidates."""
ROUNDS, MOST_ROUNDS, LEARNT = 10, 1000, (0, 4)
"""Rounds that are played; at most until every node was drawn; and before a draw is enumerated."""


class FailedError(Exception):
    """The invariant does not hold; the counterexample."""


class NotApplicableError(Exception):
    """The invariant says nothing about this strategy; why."""


def require(holds: bool, world: World, round: int, problem: str) -> None:
    if not holds:
        raise FailedError(f"{world}, round {round}: {problem}")


def started(parts: Parts, world: World) -> Game:
    return Game(begun(parts, world), world)


# --- what a round may look like --------------------------------------------------------------------------------------


def draws(parts: Parts) -> None:
    """Distinct nodes of the population, no more than announced; what is sent was drawn; all numbers are finite."""
    for world in WORLDS:
        game = started(parts, world)
        for played in game.play(ROUNDS):
            sound(game, played)
        for t in range(ROUNDS):
            epochs = game.strategy.objective.epochs(EPOCHS, stream(world.seed, "epochs", t))
            require(1 <= epochs <= EPOCHS, world, t, f"a node does {epochs} of {EPOCHS} epochs")


def sound(game: Game, played: Played) -> None:
    world, t, (drawn, sent) = game.world, played.round, (played.drawn, played.sent)
    most = game.strategy.selection.trains(world.per_round)
    require(len(drawn) <= most, world, t, f"{len(drawn)} nodes train, {most} were announced")
    came = set(played.updates.node_ids)
    require(set(sent.node_ids) <= came, world, t, f"nodes {sorted(set(sent.node_ids) - came)} send but did not train")
    require(set(played.aggregated) <= came, world, t, f"nodes {played.aggregated} are aggregated, {sorted(came)} came")
    if sent.shares is not None:
        fine = sent.shares.shape == (len(sent),) and bool(np.isfinite(sent.shares).all())
        require(fine, world, t, f"{len(sent)} updates have the shares {sent.shares}")
    fine = game.weights.shape == (PARAMETERS,) and bool(np.isfinite(game.weights).all())
    require(fine, world, t, f"the model is {game.weights}")


# --- exact expectations ----------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    nodes: list[int]
    sent: Updates


def enumerated(game: Game) -> Callable[[np.random.Generator], Drawn]:
    """The next draw with its sift, as a function of the random numbers alone."""

    def next_draw(rng: np.random.Generator) -> Drawn:
        nodes, _ = game.draw(game.round + 1, rng)
        return Drawn(nodes, game.sent(game.round + 1, nodes, rng)[1])

    return next_draw


def probabilities(parts: Parts) -> None:
    """Every probability that a draw uses lies in 0 .. 1; those of a choice, and of all outcomes, sum to 1."""
    for world in TINY:
        for rounds in LEARNT:
            game = started(parts, world)
            game.play(rounds)
            try:
                found = distribution(enumerated(game))
            except ImproperError as error:
                raise FailedError(f"{world}, round {rounds + 1}: {error}") from None
            whole = sum(p for p, _ in found.outcomes)
            require(abs(whole - 1) < 1e-9, world, rounds + 1, f"the outcomes of a draw have the probability {whole}")


def unbiased(parts: Parts) -> None:
    """Where it is claimed: the expected sum of the sent updates by their shares is the mean over all nodes."""
    for world in TINY:
        for rounds in LEARNT:
            game = started(parts, world)
            claim = game.strategy.selection.unbiased
            if not claim:
                raise NotApplicableError("the selection does not claim it")
            game.play(rounds)
            everyone = world.updates(rounds + 1, range(world.count))
            shares = (
                everyone.sizes / everyone.sizes.sum() if claim == "samples" else np.full(world.count, 1 / world.count)
            )
            expected = shares @ everyone.deltas.astype(np.float64)
            mean, slack = distribution(enumerated(game)).mean(lambda drawn: summed(drawn.sent))
            apart = np.abs(mean - expected)
            k = int(np.argmax(apart - slack))
            problem = (
                f"parameter {k} moves by {mean[k]:.6g} in expectation; the mean over all nodes is {expected[k]:.6g}"
            )
            require(bool(apart[k] <= slack[k]), world, rounds + 1, problem)


def summed(sent: Updates) -> NDArray[np.float64]:
    """The sum of the updates by their shares; their mean where there are none."""
    if not len(sent):
        return np.zeros(PARAMETERS)
    shares = np.full(len(sent), 1 / len(sent)) if sent.shares is None else sent.shares
    return np.asarray(shares @ sent.deltas.astype(np.float64))


def coverage(parts: Parts) -> None:
    """Every node is drawn sooner or later, while losses, updates and channels change."""
    world = World()
    game = started(parts, world)
    if not game.strategy.selection.covers:
        raise NotApplicableError("the selection declares that some nodes may never be drawn")
    missing = set(range(world.count))
    while missing and game.round < MOST_ROUNDS:
        missing -= set(game.play()[0].drawn)
    require(not missing, world, game.round, f"nodes {sorted(missing)} were never drawn")


# --- determinism -----------------------------------------------------------------------------------------------------


def repeatable(parts: Parts) -> None:
    """The same stream gives the same draw, and drawing changes no state: a round can be drawn again after a fault."""
    for world in WORLDS:
        game, twin = started(parts, world), started(parts, world)
        for t in range(1, ROUNDS + 1):
            before = {key: value.copy() for key, value in game.strategy.state_dict().items()}
            first, again = game.draw(t)[0], game.draw(t)[0]
            require(first == again, world, t, f"drawn twice from one stream: {first}, then {again}")
            one, two = game.sent(t, first)[1], game.sent(t, first)[1]
            require(same(one, two), world, t, f"sifted twice from one stream: {one.node_ids}, then {two.node_ids}")
            changed = [key for key, value in game.strategy.state_dict().items() if not equal(value, before.get(key))]
            require(not changed, world, t, f"drawing changed {', '.join(changed)}; only `learn` and `hear` may")
            (left,), (right,) = game.play(), twin.play()
            require(same_round(left, right), world, t, f"two runs of one seed drew {left.drawn} and {right.drawn}")


def resumable(parts: Parts) -> None:
    """What `state_dict` gives holds the whole state: a strategy restored from it has the same future."""
    for world in WORLDS:
        game = started(parts, world)
        game.play(ROUNDS // 2)
        state = {key: np.array(value) for key, value in game.strategy.state_dict().items()}
        loose = [key for key, value in state.items() if value.dtype == object]
        require(not loose, world, game.round, f"{', '.join(loose)} cannot be saved without pickle")
        other = started(parts, world)
        other.strategy.load_state_dict(state)
        other.weights, other.round, other.states = game.weights.copy(), game.round, dict(game.states)
        for left, right in zip(game.play(ROUNDS), other.play(ROUNDS), strict=True):
            problem = f"continues with {left.drawn}, restored with {right.drawn}"
            if left.drawn == right.drawn:
                problem = f"nodes {left.drawn} train, and the restored strategy takes another step"
            require(same_round(left, right), world, left.round, problem)


def equal(one: NDArray[np.generic], other: NDArray[np.generic] | None) -> bool:
    return other is not None and one.shape == other.shape and one.tobytes() == other.tobytes()


def same(one: Updates, two: Updates) -> bool:
    shares = [np.empty(0) if updates.shares is None else updates.shares for updates in (one, two)]
    return one.node_ids == two.node_ids and equal(*shares)


def same_round(one: Played, two: Played) -> bool:
    return one.drawn == two.drawn and same(one.sent, two.sent) and equal(one.step, two.step)


# --- populations at the edge -----------------------------------------------------------------------------------------


def one_node(parts: Parts) -> None:
    """In a population of one, that node is drawn."""
    world = World(1, 1, asked=1)
    game = started(parts, world)
    rounds = game.play(3 * ROUNDS)
    for played in rounds:
        sound(game, played)
    require(any(played.drawn for played in rounds), world, game.round, "the only node was never drawn")


def all_equal(parts: Parts) -> None:
    """Where all nodes and all updates are equal, the model moves along the update, and not against it."""
    world = World(5, 2, "equal", asked=4)
    game = started(parts, world)
    for played in game.play(ROUNDS):
        fine = bool((played.step >= 0).all()) and np.ptp(played.step) <= 1e-6 * (1 + np.abs(played.step).max())
        require(fine, world, played.round, f"every update is {world.deltas(1)[0]}, the model moves by {played.step}")


def zero_norms(parts: Parts) -> None:
    """Where every update is 0, the model stays."""
    world = World(5, 2, "zero", asked=4)
    game = started(parts, world)
    for played in game.play(ROUNDS):
        sound(game, played)
        require(not played.step.any(), world, played.round, f"every update is 0, the model moves by {played.step}")


def few_nodes(parts: Parts) -> None:
    """With fewer nodes, or fewer available, than a round asks for, those train; or it is refused in one line."""
    for world in (World(here=1), World(per_round=4, here=3), World(3, 5, asked=3)):
        game = started(parts, world)
        for played in game.play(ROUNDS):
            sound(game, played)


def drop_outs(parts: Parts) -> None:
    """Rounds from which only some nodes, or none, return are played to their end; with none, the model stays."""
    for share in (0.5, 1.0):
        world = World(drop_out=share)
        game = started(parts, world)
        for played in game.play(ROUNDS):
            sound(game, played)
            stays = len(played.updates) > 0 or not played.step.any()
            require(stays, world, played.round, f"no node returned, the model moves by {played.step}")


CHECKS: tuple[Callable[[Parts], None], ...] = (
    draws, probabilities, unbiased, coverage, repeatable, resumable, one_node, all_equal, zero_norms, few_nodes,
    drop_outs,
)  # fmt: skip
INVARIANTS: dict[str, Callable[[Parts], None]] = {check.__name__.replace("_", " "): check for check in CHECKS}
"""Every invariant by its name; the docstring says what must hold."""
