"""A group of actors that gets its work done, whoever dies.

Work is split into shares, one call an actor. A share whose actor is lost goes to the others at once; the lost actor is
restarted by Ray, where its resources are or wherever they are free, and joins again when it answers. Every share is a pure
function, so doing one twice changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, ObjectLostError, RayActorError, RayTaskError

from fedpns_ray.errors import LostError

Share = TypeVar("Share")

PATIENCE = 120.0
"""Seconds to wait for an actor to come back when none is left."""


def answers(calls: Any) -> Any:
    """`ray.get`, but an error raised in an actor comes out as itself."""
    try:
        return ray.get(calls)
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else error from None


class ActorGroup:
    """Actors, and which of them answer."""

    def __init__(self, actors: Sequence[Any], say: Callable[[str], None]) -> None:
        self._actors, self._say = list(actors), say
        self._away: dict[int, Any] = {}
        """Lost actors: position → the answer to `describe` that will tell of their return."""

    @property
    def present(self) -> list[int]:
        """Positions of the actors that answer; those that came back are counted in."""
        if self._away:
            done, _ = ray.wait(list(self._away.values()), num_returns=len(self._away), timeout=0)
            for position in [k for k, answer in self._away.items() if answer in done]:
                self._welcome(position)
        return [k for k in range(len(self._actors)) if k not in self._away]

    def _welcome(self, position: int) -> None:
        try:
            answers(self._away[position])
            del self._away[position]
            self._say(f"node actor {position} is back")
        except ActorUnavailableError:
            self._away[position] = self._actors[position].describe.remote()
        except RayActorError:
            pass  # it will not come back; its answer stays an error

    def _lose(self, position: int) -> None:
        self._say(f"node actor {position} was lost; its nodes train elsewhere")
        self._away[position] = self._actors[position].describe.remote()

    def _wait_for_anyone(self) -> list[int]:
        deadline = time.monotonic() + PATIENCE
        while not (present := self.present):
            if time.monotonic() > deadline:
                raise LostError(f"all {len(self._actors)} node actors are lost; none came back in {PATIENCE:.0f} s")
            time.sleep(0.1)
        return present

    def run(
        self,
        whole: Share,
        deal: Callable[[Share, Sequence[int]], dict[int, Share]],
        call: Callable[[Any, Share], Any],
    ) -> list[Any]:
        """Deal the whole to the actors present, call each once, and give back all results.

        A lost actor's share is dealt again, over those that are left.
        """
        waiting = self._call_all(deal(whole, self._wait_for_anyone()), call)
        results = []
        while waiting:
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            position, share = waiting.pop(done)
            try:
                results.append(answers(done))
            except (RayActorError, ObjectLostError):  # the actor, or the machine that held its answer
                if position not in self._away:
                    self._lose(position)
                waiting |= self._call_all(deal(share, self._wait_for_anyone()), call)
        return results

    def _call_all(self, shares: dict[int, Share], call: Callable[[Any, Share], Any]) -> dict[Any, tuple[int, Share]]:
        return {call(self._actors[k], share): (k, share) for k, share in shares.items()}
