"""Files that are written whole or not at all: a reader never sees half of one."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device", stat.S_IFLNK: "a symbolic link",
}  # fmt: skip
"""What may lie where a file should be."""
CAREFUL = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags for `os.open`, as far as this system has them: does not wait, is not inherited, changes no byte."""
SMALL = 2**26
"""Bytes of a file that always fit into memory."""
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)


def read_whole(path: Path, most: int | None = None) -> bytes | None:
    """The content of a regular file of at most so many bytes; None if there is no such file.

    A file that is larger than this machine's memory is refused: to read it would end this process, or another one.
    """
    with opened(path, most) as file:
        if file is None:
            return None
        size = os.fstat(file.fileno()).st_size
        if size > SMALL and size > (memory := psutil.virtual_memory().total):
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, and the memory of this machine {memory:,}", str(path))
        return file.read()


@contextmanager
def opened(path: Path, most: int | None = None) -> Iterator[IO[bytes] | None]:
    """A regular file of at most so many bytes, to be read; None if there is no such file.

    Everything that comes from a folder of someone else's is read through here. To open a FIFO or a device may wait
    forever: that something else lies there is an OSError, as is a file that is too large.
    """
    try:
        refuse_irregular(path.stat(), path)
        descriptor = os.open(path, os.O_RDONLY | CAREFUL)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    except ValueError:  # a name with a null character
        raise OSError(errno.EINVAL, "no file has such a name", str(path)) from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        refuse_irregular(found, path)
        if most is not None and found.st_size > most:
            raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes; {most:,} are allowed", str(path))
        yield file


def refuse_irregular(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"it is {kind_of(found)}, not a file", str(path))


def kind_of(found: os.stat_result) -> str:
    return KINDS.get(stat.S_IFMT(found.st_mode), "a file")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which replaces `path` at the end; after an error, `path` is unchanged.

    The content is flushed to disk first: after a power failure there is either the old file or the new one.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # the user named this one
        raise


def write_whole(path: Path, content: bytes) -> None:
    with replacing(path) as partial:
        partial.write_bytes(content)
