"""One study, one owner: two commands that write to the same place notice each other.

The owner leaves a claim, and while it lives a sign of life every few seconds. A second command is refused if the
first one lives: on this machine that is looked up, elsewhere it is seen from the sign of life, which must change.
An owner that gave no sign for DEAD_AFTER is taken over, and stops itself if it comes back. No clocks are compared.

Signs of life lie beside the claim, not in it: a late one cannot overwrite the claim of the next owner.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from fedpns_ray.errors import InputError, Shown
from fedpns_ray.records.claims import Claim, TakenError, new_claim, read_claim, refuse_taken, write_claim
from fedpns_ray.records.file_names import ALIVE
from fedpns_ray.records.storage import Storage

SIGN_EVERY = 5.0
"""Seconds between two signs of life; as often the owner looks whether it still is the owner."""
DEAD_AFTER = 45.0
"""Seconds without a new sign of life after which an owner on another machine counts as dead."""
LOOK_EVERY = 1.0
RELEASED_WITHIN = 5.0
"""Seconds to let go of a place at the end: a bucket that does not answer must not delay a stop for long."""

logger = logging.getLogger(__name__)

_held: set[str] = set()
"""Ids of the claims that this process holds."""


class Ownership:
    """The right to write to a study's storage, held within `with`."""

    def __init__(self, storage: Storage, stop: Callable[[], bool] = lambda: False) -> None:
        """`stop`: polled while another owner is watched; True ends the wait with a refusal."""
        self._storage, self._stop = storage, stop
        self._claim = new_claim()
        self.taken_from = ""
        """The claim of an owner that was given up; it may still hold locks."""
        self._dead: tuple[bytes | None, bytes | None] | None = None
        self._closed, self._lost = threading.Event(), threading.Event()

    @property
    def id(self) -> str:
        return self._claim.id

    @property
    def lost(self) -> bool:
        """Whether another command has claimed the place; asked every few seconds."""
        return self._lost.is_set()

    def refuse_living(self) -> Claim | None:
        """A TakenError if the place has an owner that lives. Writes nothing. Returns the claim of a dead one."""
        there = read_claim(self._storage)
        if there is None or there.ended or not self._lives(there):
            return there
        hint = "wait for it, stop it, or name another folder"
        raise TakenError("out", Shown(self._storage), hint=hint, problem=f"is in use by {there.describe()}")

    def _lives(self, owner: Claim) -> bool:
        if owner.id in _held:
            return True
        if owner.is_of_this_machine:
            return owner.process != self._claim.process and owner.process_is_alive
        first, deadline = self._sign(owner), time.monotonic() + DEAD_AFTER
        if first == self._dead:
            return False  # it was watched before
        logger.info("%s belongs to %s: waiting for a sign of life, %.0f s", self._storage, owner.describe(), DEAD_AFTER)
        while time.monotonic() < deadline:
            time.sleep(LOOK_EVERY)
            if self._stop() or self._sign(owner) != first:
                return True
        self._dead = first
        return False

    def _sign(self, owner: Claim) -> tuple[bytes | None, bytes | None]:
        """What changes while an owner lives, or when another one takes over."""
        now = read_claim(self._storage)
        return self._storage.read(ALIVE + owner.id), now.id.encode() if now and not now.ended else None

    def __enter__(self) -> Ownership:
        before = self.refuse_living()
        write_claim(self._storage, self._claim)
        self._give_sign(0)
        if before and not before.ended:
            logger.warning("taking over from %s, which is gone", before.describe())
            self.taken_from = before.id
            self._storage.delete(ALIVE + before.id)
        _held.add(self.id)
        threading.Thread(target=self._keep, name="fedpns ownership", daemon=True).start()
        return self

    def _give_sign(self, number: int) -> None:
        self._storage.write(ALIVE + self.id, str(number).encode())

    def _keep(self) -> None:
        number = 0
        while not self._closed.wait(SIGN_EVERY):
            number += 1
            try:
                there = read_claim(self._storage)
                if there and there.id != self.id:
                    self._lost.set()
                    return
                if there:  # a folder that is away, such as a mount, is not begun anew
                    self._give_sign(number)
            except (InputError, OSError):  # a place that cannot be reached for a while; trials say so themselves
                continue

    def check(self) -> None:
        """A TakenError if another command has claimed the place."""
        refuse_taken(self._storage, self.id)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        _held.discard(self.id)
        release = threading.Thread(target=self._release, name="fedpns release", daemon=True)
        release.start()
        release.join(RELEASED_WITHIN)

    def _release(self) -> None:
        try:
            there = read_claim(self._storage)
            if there and there.id == self.id:  # a claim that ended stays: a former owner that comes back must see it
                write_claim(self._storage, self._claim.model_copy(update={"ended": True}))
            self._storage.delete(ALIVE + self.id)
        except (InputError, OSError):
            pass  # the next owner finds that this process is gone
