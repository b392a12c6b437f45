"""The working folder of a trial: in the study's own folder, or on its machine and copied to the study's bucket.

A bucket that fails for a while costs nothing but time: the trial continues, and what could not be copied is copied
later. Whoever opens the folder of a trial in a bucket claims it; a worker whose claim was replaced, because its machine
was cut off and the trial runs elsewhere, copies nothing more and ends with a TakenError. In a study's own folder the
lock of the run folder does the same.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fedpns_ray.errors import InputError, one_line
from fedpns_ray.records.claims import TakenError, new_claim, refuse_taken, write_claim
from fedpns_ray.records.storage import Storage

PUSH_EVERY = 30.0
"""Seconds between two copies to a bucket."""
RETRIED_FOR = 30.0
"""Seconds for which a copy that cannot wait is tried again, at the beginning and at the end of a trial."""
RETRY_EVERY = 2.0

logger = logging.getLogger(__name__)


class Scratch:
    """Where a trial works. `folder` is its place in the storage, `path` the folder on this machine."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, folder
        if storage.path:
            self.path = storage.path / folder
            return
        self.path = Path(tempfile.mkdtemp(prefix="fedpns-"))
        self._claim = new_claim()
        try:
            self._insist(lambda: write_claim(storage, self._claim, folder))  # before it is read: nobody writes then
            self._insist(lambda: storage.pull(folder, self.path))
        except BaseException:
            self.discard()
            raise
        self._pushed = time.monotonic()

    def push_if_due(self) -> None:
        """Copy it to the bucket now and then; if that fails, later."""
        if self._storage.path or time.monotonic() - self._pushed < PUSH_EVERY:
            return
        try:
            self._push()
        except TakenError:
            raise
        except InputError as error:
            logger.warning("%s; retrying in %.0f s, the trial continues", one_line(error), PUSH_EVERY)
        self._pushed = time.monotonic()

    def _push(self) -> None:
        self._storage.push(self._folder, self.path, lambda: refuse_taken(self._storage, self._claim.id, self._folder))

    def close(self) -> None:
        """Copy it to the bucket for the last time, and remove it here."""
        try:
            if not self._storage.path:
                self._insist(self._push)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the copy on this machine."""
        if not self._storage.path:
            shutil.rmtree(self.path, ignore_errors=True)

    def _insist(self, copy: Callable[[], None]) -> None:
        deadline = time.monotonic() + RETRIED_FOR
        while True:
            try:
                return copy()
            except TakenError:
                raise
            except InputError as error:
                if time.monotonic() > deadline:
                    raise
                logger.warning("%s; retrying", one_line(error))
                time.sleep(RETRY_EVERY)
