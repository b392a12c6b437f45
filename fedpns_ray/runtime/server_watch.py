"""A run's server, followed from the driver process: its news, its deadlines, its end."""

from __future__ import annotations

import logging
import time
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayTaskError

from fedpns_ray.errors import LostError
from fedpns_ray.records.result import Result
from fedpns_ray.runtime.actor_group import FETCHED_WITHIN
from fedpns_ray.runtime.deadlines import STOPPED_WITHIN, Deadline
from fedpns_ray.runtime.driver import Following
from fedpns_ray.runtime.lookout import guarded
from fedpns_ray.runtime.news import News

LOOK_EVERY = 0.2
"""Seconds between two looks at a running server."""
STALLED = 2
"""Deadlines for a round, or for a word from the server: within one it notices an actor that hangs, and says so."""

logger = logging.getLogger(__name__)


class ServerWatch:
    """Reports every round until the run is over, and logs what the server has logged.

    A server that hangs is killed. A server that Ray has restarted is asked to resume from here: Ray's own retries fill
    the terminal when its control store is gone. A server that was lost too often no longer answers.
    """

    def __init__(
        self, server: Any, population: Any, following: Following, deadlines: tuple[Deadline, Deadline]
    ) -> None:
        """`deadlines`: for the server's answer to a question, and for a round."""
        self._server, self._population, self._following = server, population, following
        self._question, self._round = deadlines
        self._ask = server.news.options(enable_task_events=False)  # no line in the dashboard for every look
        self._told = 0
        self._faults: list[str] = []
        self._stopping: float | None = None
        self._start()

    def _start(self) -> None:
        self._run = self._server.run.remote([self._population], self._told or None, self._faults)
        self._ask_again()
        self._progressed = time.monotonic()

    def follow(self) -> Result | None:
        """The run's result; None if it was stopped before its end."""
        while True:
            done, news = guarded(self._look)
            if news:
                self._report(news)
                self._ask_again()
            if done:
                try:
                    return self._ended()
                except RayActorError as error:
                    if isinstance(error, RayTaskError):  # raised by the server, not by its loss
                        raise
                    self._start()
            self._check_deadlines()
            if self._following.stop() and self._stopped():
                return None

    def _ended(self) -> Result | None:
        """The result, once all rounds are reported: those before the question that is open, and those since."""
        try:
            result: Result | None = guarded(ray.get, self._run, timeout=FETCHED_WITHIN)
            for _ in range(2):
                self._report(guarded(ray.get, self._news, timeout=FETCHED_WITHIN))
                self._ask_again()
        except GetTimeoutError:
            raise LostError(f"the result of the run did not arrive within {FETCHED_WITHIN:.0f} s") from None
        return result

    def _look(self) -> tuple[bool, News | None]:
        """Whether the run has ended, and the news if the server has answered."""
        done, _ = ray.wait([self._run], timeout=LOOK_EVERY)
        answered, _ = ray.wait([self._news], timeout=LOOK_EVERY)
        if not answered:
            return bool(done), None
        try:
            news: News = ray.get(self._news, timeout=FETCHED_WITHIN)
            self._question.observe(time.monotonic() - self._asked)
            return bool(done), news
        except ActorUnavailableError:  # restarting
            self._ask_again()
            return bool(done), None

    def _ask_again(self) -> None:
        """For the rounds after the last one that was reported."""
        self._news, self._asked = self._ask.remote(self._told), time.monotonic()

    def _report(self, news: News) -> None:
        for message in news.messages:
            logger.log(message.level, "%s", message.text)
            self._progressed = time.monotonic()
        for record in news.records:
            self._following.on_round(record)
            self._round.observe(record.seconds)
            self._told, self._progressed = record.round, time.monotonic()

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        silent, stalled = now - self._asked, now - self._progressed
        if silent > self._question.limit:
            self._kill(f"the server did not answer for {silent:.0f} s")
        elif stalled > STALLED * self._round.limit:
            self._kill(f"the server completed no round for {stalled:.0f} s")

    def _kill(self, fault: str) -> None:
        logger.warning("%s: killing it, and resuming from the checkpoint", fault)
        self._faults = [*self._faults, f"{fault} and was killed"]
        guarded(ray.kill, self._server, no_restart=False)
        self._asked = self._progressed = time.monotonic()

    def _stopped(self) -> bool:
        """Ask the server to stop, again and again, as a restarted one does not know; for a few seconds only."""
        self._server.stop.remote()
        self._stopping = self._stopping or time.monotonic()
        if time.monotonic() - self._stopping < STOPPED_WITHIN:
            return False
        logger.warning("the round did not end within %.0f s: the run ends at its last checkpoint", STOPPED_WITHIN)
        return True
