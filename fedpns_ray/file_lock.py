"""Locks on files, which the system releases when their holder ends. Linux and macOS have them.

Whatever only reads, and what is sent to a cluster, needs none, so that a laptop of any kind can do it.
"""

from __future__ import annotations

import errno
from typing import IO


def hold(file: IO[bytes], shared: bool = False) -> None:
    """Hold the lock of an open file until it is closed; a BlockingIOError if another process holds it."""
    try:
        import fcntl
    except ImportError:
        raise OSError(errno.ENOTSUP, "this system has no locks on files; a run needs Linux or macOS") from None
    fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
