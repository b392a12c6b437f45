"""Notices within seconds that a cluster was lost, and reports it in one line instead of waiting.

If its control store (the GCS) is gone, Ray 2.60 retries for 60 s while the caller is blocked in C++, then prints a raw
message and ends the process. So one thread watches the store's port, and every call that may need the store runs in a
thread of its own, which is abandoned when the store is gone. `ray.shutdown()` within the 60 s keeps the process alive.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from fedpns_ray.errors import LostError

LOST_AFTER = 10.0
"""Seconds without an answer after which a cluster counts as lost."""
LOOK_EVERY = 0.5
"""Seconds between two checks of the port, and of whether a call must be abandoned."""
ANSWERS_WITHIN = 2.0
"""Seconds allowed for a connection, and for an answer."""
MUTE_AFTER = 30.0
"""Seconds after which a store that accepts connections but answers nothing, because it is frozen, counts as lost."""

P = ParamSpec("P")
T = TypeVar("T")


class Lookout:
    """Watches the port of a control store until the lookout is closed or the store is lost."""

    def __init__(self, address: str, name: str) -> None:
        self._address, self._name = address, name
        self._silent_since: float | None = None
        self._mute_since: float | None = None
        self._why = ""
        self._lost, self._closed = threading.Event(), threading.Event()
        threading.Thread(target=self._look, name="fedpns lookout", daemon=True).start()

    def _look(self) -> None:
        while not self._closed.wait(LOOK_EVERY):
            began = time.monotonic()
            connected = answers(self._address)
            self._silent_since = None if connected else self._silent_since or began
            self._mute_since = None if not connected or responds(self._address) else self._mute_since or began
            for since, limit in ((self._silent_since, LOST_AFTER), (self._mute_since, MUTE_AFTER)):
                if since is not None and time.monotonic() - since > limit:
                    self._why = f"its control store has not answered for {limit:.0f} s"
                    self._lost.set()
                    return

    def close(self) -> None:
        self._closed.set()

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    def error(self) -> LostError:
        return LostError(f"{self._name} was lost ({self._why})")

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result; LostError as soon as the cluster is lost, or if that is why the function failed."""
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
        """Wait until a silent store answers or is lost; if it is lost, that explains every other failure."""
        while not self.lost and (self._silent_since is not None or not answers(self._address)):
            time.sleep(LOOK_EVERY)
        if self.lost:
            raise self.error()


def answers(address: str) -> bool:
    """Whether something listens at the address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS_WITHIN).close()
    except OSError:
        return False
    return True


def responds(address: str) -> bool:
    """Whether the store answers a question, as a frozen one does not; any answer will do, a refusal too.

    The kernel accepts connections for a frozen process, so only an answer proves that it runs. With TLS, which would
    need Ray's certificates here, a connection must do. gRPC would print what it thinks of each answer to the terminal;
    it reads its only setting when it is loaded.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import grpc

    if os.environ.get("RAY_USE_TLS", "0") in ("1", "true", "True"):
        return True
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=ANSWERS_WITHIN)
        except grpc.RpcError as error:
            return error.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
    return True


def _answer(answer: Future[T], function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    try:
        answer.set_result(function(*args, **kwargs))
    except BaseException as error:  # raised again in the caller's thread
        answer.set_exception(error)


_lookout: Lookout | None = None
"""A process is connected to one cluster at a time."""


@contextmanager
def looked_after(address: str, name: str) -> Iterator[Lookout]:
    """Watch the cluster whose control store is at `address`; an enclosing lookout is reused."""
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
    """Call a function that may need the cluster; LostError if it is lost. Outside a session this is a plain call."""
    return _lookout.call(function, *args, **kwargs) if _lookout else function(*args, **kwargs)


def refuse_lost() -> None:
    """Raise LostError if the cluster is lost or about to be. Call it after failures that a loss would explain."""
    if _lookout:
        _lookout.settle()
