"""What a run has to tell: records and messages, written by one thread and read by others."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from fedpns_ray.core.run import Record

KEPT = 1000
"""Records kept for readers, who ask several times a second."""


class News(NamedTuple):
    """What happened since somebody last asked."""

    records: list[Record]
    messages: list[str]


class Newsroom:
    """The latest records, and the messages that nobody has read yet.

    Iterating over a deque while another thread appends to it raises, so every access takes the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: deque[Record] = deque(maxlen=KEPT)
        self._messages: list[str] = []

    def add(self, record: Record) -> None:
        with self._lock:
            self._records.append(record)

    def say(self, message: str) -> None:
        with self._lock:
            self._messages.append(message)

    def since(self, after: int) -> News:
        """Records of the rounds after this one, and every message once."""
        with self._lock:
            records = [record for record in self._records if record["round"] > after]
            messages, self._messages = self._messages, []
        return News(records, messages)
