"""Where a study is stored: a folder that all its machines can see, or the URI of a bucket.

A path is used as it is. To a URI (s3://, gs://, and whatever else pyarrow and fsspec know, as in Ray Tune's
storage_path) files are copied one by one: a trial works in a local folder on its machine.
"""

from __future__ import annotations

import os
import posixpath
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pyarrow import ArrowException, fs

from fedpns_ray.addresses import reason, redacted
from fedpns_ray.atomic_file import read_whole, write_whole
from fedpns_ray.errors import InputError, Shown, one_line
from fedpns_ray.records.file_names import ALIVE, CHECKPOINT, OWNER, PREVIOUS, STUDY, SUMMARY

VOUCHING = (PREVIOUS, CHECKPOINT, SUMMARY)
"""Files that vouch for others are copied after them."""
READERS = 16
ANSWERED_WITHIN = 60.0
"""Seconds for a bucket to answer one question; it may accept connections and never answer."""

T = TypeVar("T")


class Storage:
    """Named files below one place. Only its address travels between processes."""

    def __init__(self, place: str | Path) -> None:
        self.place = str(place)
        self.is_uri = "://" in self.place
        self.path = None if self.is_uri else Path(self.place).absolute()

    def __reduce__(self) -> Any:
        return Storage, (self.place if self.is_uri else str(self.path),)

    def __str__(self) -> str:
        """The address as it may be shown: without the keys that a URI can carry."""
        return redacted(self.place)

    @cached_property
    def _filesystem(self) -> tuple[fs.FileSystem, str]:
        if self.path:
            return fs.LocalFileSystem(), str(self.path)
        try:
            return fs.FileSystem.from_uri(self.place)
        except (ValueError, ArrowException) as error:  # unknown to pyarrow; fsspec may know it
            import fsspec

            scheme, _, path = self.place.partition("://")
            try:
                return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme))), path
            except Exception:  # of any kind: every scheme has a library of its own
                raise InputError("out", self, reason(error, self.place)) from None

    def _answer(self, ask: Callable[[], T]) -> T:
        """What the file system answers; an InputError in one line if it refuses, or does not answer in time.

        A bucket is asked by a thread that can be abandoned, so that a silent one delays neither us nor a signal for
        long. Whether a file is missing is an answer.
        """
        try:
            if self.path:
                return ask()
            answer: Future[T] = Future()
            threading.Thread(target=_settle, args=(answer, ask), daemon=True).start()
            if not wait([answer], ANSWERED_WITHIN).done:
                raise InputError("out", self, problem=f"did not answer within {ANSWERED_WITHIN:.0f} s")
            return answer.result(0)
        except (FileNotFoundError, NotADirectoryError, InputError):
            raise
        except Exception as error:
            if self.path and not isinstance(error, OSError):
                raise
            problem = getattr(error, "strerror", None) or reason(error, self.place)
            raise InputError("out", self, problem=f"cannot be used ({problem})") from None

    def _at(self, name: str) -> tuple[fs.FileSystem, str]:
        system, root = self._filesystem
        return system, posixpath.join(root, name) if name else root

    def read(self, name: str) -> bytes | None:
        """A file's content, or None if there is no such file."""

        def content() -> bytes | None:
            if self.path:
                return read_whole(self.path / name)
            system, path = self._at(name)
            with system.open_input_stream(path) as stream:
                return stream.readall()

        try:
            return self._answer(content)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_each(self, names: Iterable[str]) -> list[bytes | InputError | None]:
        """The same of several files; for one that cannot be read, the error."""

        def content(name: str) -> bytes | InputError | None:
            try:
                return self.read(name)
            except InputError as error:
                return InputError("", Shown(name), problem=error.problem)

        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(content, names))

    def read_all(self, names: Iterable[str]) -> list[bytes | None]:
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(self.read, names))

    def write(self, name: str, content: bytes) -> None:
        def put() -> None:
            system, path = self._at(name)
            if self.path:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                write_whole(Path(path), content)
            else:
                with system.open_output_stream(path) as stream:
                    stream.write(content)

        try:
            self._answer(put)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InputError("out", self, problem=f"cannot be used ({error.strerror or one_line(error)})") from None

    def add_line(self, name: str, line: str) -> None:
        """Append to a text file, unless it already holds the line."""
        lines = (self.read(name) or b"").decode(errors="replace").splitlines()
        if line not in lines:
            self.write(name, "".join(f"{one}\n" for one in [*lines, line]).encode())

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""

        def remove() -> None:
            system, path = self._at(name)
            system.delete_file(path)

        with suppress(FileNotFoundError, NotADirectoryError):
            self._answer(remove)

    def names(self, folder: str = "") -> list[str]:
        """What lies directly in a folder."""

        def listed() -> list[str]:
            if self.path:
                return sorted(path.name for path in (self.path / folder).iterdir())
            system, path = self._at(folder)
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
            return sorted(info.base_name for info in found)

        try:
            return self._answer(listed)
        except FileNotFoundError:
            return []

    def pull(self, folder: str, to: Path) -> None:
        """Copy a folder's files to this machine, without the claim on it."""
        to.mkdir(parents=True, exist_ok=True)
        for name in self.names(folder):
            if name == OWNER:
                continue
            content = self.read(f"{folder}/{name}")
            if content is not None:
                (to / name).write_bytes(content)

    def push(self, folder: str, source: Path, before_each: Callable[[], None] = lambda: None) -> None:
        """Copy files from this machine, those that vouch for others last, so that readers never find them too early.

        `before_each` is called before every file; if it raises, nothing more is copied.
        """
        names = [path.name for path in source.iterdir() if path.is_file() and not path.name.startswith(".")]
        for name in sorted(names, key=lambda name: VOUCHING.index(name) if name in VOUCHING else -1):
            before_each()
            self.write(f"{folder}/{name}", (source / name).read_bytes())

    def check(self) -> None:
        """Refuse a place that cannot be written to, or that holds something else."""
        if self.path and os.path.lexists(self.path) and not self.path.is_dir():
            raise InputError("out", self, problem="is a file", hint="name a folder")
        there = [name for name in self.names() if name != OWNER and not name.startswith(ALIVE)]
        if there and STUDY not in there:
            raise InputError("out", self, problem="is not empty and holds no study", hint="name a new folder")


def _settle(answer: Future[T], ask: Callable[[], T]) -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:  # whatever it is, it is for the one who waits
        answer.set_exception(error)
