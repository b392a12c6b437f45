"""The folder of a private Ray: made for it, removed with it, and cleared by the next run if that was killed.

Ray puts a session with logs, sockets and spilled objects under the temporary folder and never removes it. A private
Ray gets a folder of its own instead. The run that started it holds a lock on it, so that others can tell, even from
another container, whether it is still in use.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from fedpns_ray.file_lock import hold
from fedpns_ray.runtime import ray_private

NAME = "fedpns-ray-"
"""The names of these folders begin with this."""
LONGEST = 23
"""Characters of the temporary folder: with more, the path of a socket of Ray would exceed the system's 107."""
LOCK = "lock"
UNMARKED_AFTER = 60.0
"""Seconds after which a folder without a lock is a leftover."""
ENDED_WITHIN = 5.0
"""Seconds for the last processes of a Ray that was shut down to stop writing into its folder."""


class RayFolder:
    """Held by the run that made it until it is removed or released."""

    def __init__(self) -> None:
        place = temporary_folder()
        clear_leftovers(place)
        made = Path(tempfile.mkdtemp(prefix=f".{NAME}", dir=place))
        (made / LOCK).touch()
        self._lock = _locked(made)  # before it has the name by which others look for leftovers
        self.path = made.rename(place / made.name.lstrip("."))

    def remove(self) -> None:
        """Once its Ray is shut down."""
        _remove(self.path)
        self.release()

    def release(self) -> None:
        """Leave it to the next run to clear: until then the logs of a Ray that was lost can be read."""
        if self._lock:
            self._lock.close()


def temporary_folder() -> Path:
    """Ray's choice, or /tmp where that is too long."""
    chosen = ray_private.temporary_folder()
    return chosen if len(str(chosen)) <= LONGEST else Path("/tmp")


def clear_leftovers(place: Path) -> None:
    """Remove the folders of private Rays whose run was killed and whose processes are gone."""
    ours = [folder for folder in place.glob(f"{NAME}*") if _is_ours(folder)]
    left = {folder: lock for folder in ours if (lock := _locked(folder)) or _is_unmarked(folder)}
    if not left:
        return
    used = " ".join(word for command in ray_private.ray_commands("gcs_server", "raylet") for word in command)
    for folder, lock in left.items():
        if str(folder) not in used:
            _remove(folder)
        if lock:
            lock.close()


def _is_ours(folder: Path) -> bool:
    return not folder.is_symlink() and folder.is_dir() and folder.stat().st_uid == os.getuid()


def _is_unmarked(folder: Path) -> bool:
    """Without a lock, and not new: processes that were about to end have written into a folder that was removed."""
    with suppress(OSError):
        return not (folder / LOCK).exists() and time.time() - folder.stat().st_mtime > UNMARKED_AFTER
    return False


def _locked(folder: Path) -> IO[bytes] | None:
    """The lock of a folder, taken; None if another process holds it, or there is none."""
    with suppress(OSError):
        file = (folder / LOCK).open("rb")
        with suppress(BlockingIOError):
            hold(file)
            return file
        file.close()
    return None


def _remove(folder: Path) -> None:
    """Again while processes that are about to end still write into it."""
    for _ in _until(time.monotonic() + ENDED_WITHIN):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def _until(deadline: float) -> Iterator[None]:
    yield
    while time.monotonic() < deadline:
        time.sleep(0.1)
        yield
