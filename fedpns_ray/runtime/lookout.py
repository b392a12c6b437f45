"""A cluster that is lost in the middle: noticed within seconds, said in one line, and waited for by nobody.

Ray 2.60 calls its control store (the GCS) again and again for 60 s while whoever asked is blocked in C++; then it prints a raw
message and ends the process. So a thread looks at the store's port meanwhile, and a call that may need the store is made in
a thread of its own, which is left behind when the store is gone. `ray.shutdown()` within the 60 s keeps the process alive.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from fedpns_ray.errors import LostError

LOST_AFTER = 10.0
"""Seconds without an answer after which a cluster is lost; a control store that is back sooner is not."""
LOOK_EVERY = 0.5
"""Seconds between two looks at the port, and at whether a call has to be left behind."""
ANSWERS_WITHIN = 2.0
"""Seconds for a connection to be made."""

P = ParamSpec("P")
T = TypeVar("T")


class Lookout:
    """Looks at the port of a control store until it is closed or the store is lost."""

    def __init__(self, address: str, name: str) -> None:
        self._address, self._name = address, name
        self._silent_since: float | None = None
        self._lost, self._closed = threading.Event(), threading.Event()
        threading.Thread(target=self._look, name="fedpns lookout", daemon=True).start()

    def _look(self) -> None:
        while not self._closed.wait(LOOK_EVERY):
            began = time.monotonic()
            if answers(self._address):
                self._silent_since = None
                continue
            self._silent_since = began if self._silent_since is None else self._silent_since
            if time.monotonic() - self._silent_since > LOST_AFTER:
                self._lost.set()
                return

    def close(self) -> None:
        self._closed.set()

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    def error(self) -> LostError:
        return LostError(f"{self._name} was lost (its control store has not answered for {LOST_AFTER:.0f} s)")

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result; a LostError as soon as the cluster is lost, or if that is why the function failed."""
        answer: Future[T] = Future()
        if not self.lost:
            threading.Thread(target=_answer, args=(answer, function, args, kwargs), daemon=True).start()
        while not self.lost:
            wait([answer], timeout=LOOK_EVERY)
            if answer.done():
                if answer.exception():
                    self.settle()
                return answer.result()
        raise self.error()

    def settle(self) -> None:
        """Wait until a silent store answers or is lost, which is then the reason of all else that goes wrong."""
        while not self.lost and (self._silent_since is not None or not answers(self._address)):
            time.sleep(LOOK_EVERY)
        if self.lost:
            raise self.error()


def answers(address: str) -> bool:
    """Whether somebody listens there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS_WITHIN).close()
    except OSError:
        return False
    return True


def _answer(answer: Future[T], function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    try:
        answer.set_result(function(*args, **kwargs))
    except BaseException as error:  # whatever it is, it is the caller's
        answer.set_exception(error)


_lookout: Lookout | None = None
"""A process is connected to one cluster at a time."""


@contextmanager
def looked_after(address: str, name: str) -> Iterator[Lookout]:
    """Look out for the cluster whose control store is at `address`; within another lookout, that one goes on."""
    global _lookout
    if _lookout:
        yield _lookout
        return
    _lookout = Lookout(address, name)
    try:
        yield _lookout
    finally:
        _lookout.close()
        _lookout = None


def guarded(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what may need the cluster; a LostError if it is lost. Outside a session the function is just called."""
    return _lookout.call(function, *args, **kwargs) if _lookout else function(*args, **kwargs)


def refuse_lost() -> None:
    """A LostError if the cluster is lost, or turns out to be. Ask after failures that its loss would explain."""
    if _lookout:
        _lookout.settle()
