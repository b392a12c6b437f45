"""The curves of a run for TensorBoard: a copy of what rounds.jsonl holds. No run fails for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.records.record import COSTS, Record
from fedpns_ray.records.schema import plotted

if TYPE_CHECKING:
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event

FLUSH_EVERY = 60.0
"""Seconds between two flushes; TensorBoard looks every 30."""

logger = logging.getLogger(__name__)


class Curves:
    """Written beside the records, from round `done` on; TensorBoard hides what an earlier run wrote of later rounds.

    Written in this thread: the threads of tensorboardX's SummaryWriter print tracebacks when the disk is full. Imported
    when a run is written: tensorboardX imports torch, which readers need not wait for.
    """

    def __init__(self, folder: Path, quantities: Iterable[Quantity], done: int) -> None:
        self._folder = folder
        self._keys = (*(quantity.key for quantity in (*plotted(quantities), *COSTS)), Record.lr, Record.seconds)
        self._writer: EventsWriter | None = None
        self._flushed = time.monotonic()
        self._attempt(lambda: self._begin(done + 1))

    def _begin(self, step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self._writer = EventsWriter(str(self._folder / "events"))
        self._writer.write_event(Event(step=step, session_log=SessionLog(status=SessionLog.START)))

    def add(self, record: Record) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary as Scalars

        found = {key: record[key] for key in self._keys if record.get(key) is not None}
        values = [Scalars.Value(tag=key, simple_value=float(value)) for key, value in found.items()]
        event = Event(step=record.round, wall_time=time.time(), summary=Scalars(value=values))
        self._attempt(lambda: self._write(event))

    def _write(self, event: Event) -> None:
        if self._writer is None:
            return
        self._writer.write_event(event)
        if time.monotonic() - self._flushed > FLUSH_EVERY:
            self._writer.flush()
            self._flushed = time.monotonic()

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            self._writer = None
            logger.warning("%s: curves for TensorBoard are no longer written (%s)", self._folder, error.strerror)

    def close(self) -> None:
        self._attempt(lambda: self._writer and self._writer.close())
        self._writer = None
