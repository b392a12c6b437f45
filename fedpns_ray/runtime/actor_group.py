"""A group of actors that completes its work even if actors are lost or hang.

Work is split into shares, one call per actor. The share of a lost actor goes to the others at once; Ray restarts the
lost actor, where its resources are or wherever some are free, and it joins again when it answers. An actor that misses
its deadline is killed and treated as lost. Every share is a pure function, so computing one twice changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, ObjectLostError, RayActorError, RayTaskError

from fedpns_ray.errors import LostError
from fedpns_ray.runtime.deadlines import Deadline

logger = logging.getLogger(__name__)

Share = TypeVar("Share")

LOOK_EVERY = 1.0
"""Seconds between two checks of the deadline."""
BACK_WITHIN = 120.0
"""Seconds to wait for an actor to come back when none is left."""
SAID_EVERY = 5.0
"""Seconds between two messages while waiting for one."""
FETCHED_WITHIN = 300.0
"""Seconds to transfer an answer that is ready."""


def answers(calls: Any, within: float = FETCHED_WITHIN) -> Any:
    """`ray.get`, but an error raised in an actor is raised as itself."""
    try:
        return ray.get(calls, timeout=within)
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else error from None


class ActorGroup:
    """Actors, and which of them answer."""

    def __init__(self, actors: Sequence[Any], deadline: Deadline) -> None:
        self._actors, self.deadline = list(actors), deadline
        self.faults: list[str] = []
        """What went wrong and was mended, in words; recording it empties the list."""
        self._away: dict[int, Any] = {}
        """Lost actors: position → the pending call of `describe`, which answers when they are back."""

    @property
    def present(self) -> list[int]:
        """Positions of the actors that answer, including those that have come back."""
        if self._away:
            done, _ = ray.wait(list(self._away.values()), num_returns=len(self._away), timeout=0)
            for position in [k for k, answer in self._away.items() if answer in done]:
                self._welcome(position)
        return [k for k in range(len(self._actors)) if k not in self._away]

    def _welcome(self, position: int) -> None:
        try:
            answers(self._away[position])
            del self._away[position]
            logger.info("node actor %d is back", position)
        except ActorUnavailableError:
            self._away[position] = self._actors[position].describe.remote()
        except RayActorError:
            pass  # it will not come back; its call stays an error

    def _lose(self, position: int, reason: str = "was lost") -> None:
        if position in self._away:
            return
        fault = f"node actor {position} {reason}"
        logger.warning("%s; its nodes train elsewhere", fault)
        self.faults.append(fault)
        self._away[position] = self._actors[position].describe.remote()

    def _kill(self, position: int, seconds: float) -> None:
        """End an actor that hangs; Ray restarts it. It is killed by its machine's raylet, so it need not cooperate."""
        ray.kill(self._actors[position], no_restart=False)
        self._lose(position, f"did not answer for {seconds:.0f} s and was killed")

    def _wait_for_any(self) -> list[int]:
        began = said = time.monotonic()
        while not (present := self.present):
            now = time.monotonic()
            if now - began > BACK_WITHIN:
                raise LostError(f"all {len(self._actors)} node actors are lost; none came back in {BACK_WITHIN:.0f} s")
            if now - said > SAID_EVERY:
                logger.info("no node actor answers: waiting for one, %.0f of %.0f s", now - began, BACK_WITHIN)
                said = now
            time.sleep(0.1)
        return present

    def run(
        self,
        whole: Share,
        deal: Callable[[Share, Sequence[int]], dict[int, Share]],
        call: Callable[[Any, Share], Any],
    ) -> list[Any]:
        """Deal the whole to the actors present, call each once, and return all results.

        A lost actor's share is dealt again to the actors that are left.
        """
        heard = time.monotonic()
        waiting = self._call_all(deal(whole, self._wait_for_any()), call)
        results = []
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=LOOK_EVERY)
            missing: list[Share] = []
            for done in ready:
                heard = time.monotonic()
                position, share = waiting.pop(done)
                try:
                    results.append(answers(done))
                except (RayActorError, ObjectLostError, GetTimeoutError):  # the actor, or the machine with its answer
                    self._lose(position)
                    missing.append(share)
            if (silence := time.monotonic() - heard) > self.deadline.limit:
                for position, share in waiting.values():
                    self._kill(position, silence)
                    missing.append(share)
                waiting, heard = {}, time.monotonic()
            for share in missing:
                waiting |= self._call_all(deal(share, self._wait_for_any()), call)
        return results

    def _call_all(self, shares: dict[int, Share], call: Callable[[Any, Share], Any]) -> dict[Any, tuple[int, Share]]:
        return {call(self._actors[k], share): (k, share) for k, share in shares.items()}
