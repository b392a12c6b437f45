"""What a run reports while it is under way: records and log messages, written by one thread and read by others."""

from __future__ import annotations

import logging
import threading
from collections import deque
from types import TracebackType
from typing import NamedTuple

from fedpns_ray.records.record import Record

KEPT = 1000
"""Records kept for readers, which ask several times per second."""

package_logger = logging.getLogger("fedpns_ray")


class Message(NamedTuple):
    """A log message on its way to the driver."""

    level: int
    text: str


class News(NamedTuple):
    """What happened since the last call."""

    records: list[Record]
    messages: list[Message]


class Newsroom(logging.Handler):
    """The latest records, and the log messages that have not been read yet.

    As a context manager it receives what this process logs under "fedpns_ray". Iterating over a deque while another
    thread appends to it raises, so every access takes the lock.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lock = threading.Lock()
        self._records: deque[Record] = deque(maxlen=KEPT)
        self._messages: list[Message] = []

    def __enter__(self) -> Newsroom:
        self._level_before = package_logger.level
        package_logger.setLevel(logging.INFO)
        package_logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        package_logger.removeHandler(self)
        package_logger.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        message = Message(record.levelno, record.getMessage())
        with self._lock:
            self._messages.append(message)

    def add(self, record: Record) -> None:
        with self._lock:
            self._records.append(record)

    def since(self, after: int) -> News:
        """Records of the rounds after this one, and every message once."""
        with self._lock:
            records = [record for record in self._records if record.round > after]
            messages, self._messages = self._messages, []
        return News(records, messages)
