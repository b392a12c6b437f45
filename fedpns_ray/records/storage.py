"""Where a study is stored: a folder that all its machines can see, or the URI of a bucket.

A path is used as it is. To a URI (s3://, gs://, and whatever else pyarrow and fsspec know, as in Ray Tune's
storage_path) files are copied one by one: a trial works in a local folder on its machine.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from pyarrow import fs

from fedpns_ray.addresses import reason, redacted
from fedpns_ray.atomic_file import read_whole, write_whole
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.records.file_names import CHECKPOINT, PREVIOUS, STUDY, SUMMARY

VOUCHING = (PREVIOUS, CHECKPOINT, SUMMARY)
"""Files that vouch for others are copied after them."""
READERS = 16


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
        except ValueError as error:  # unknown to pyarrow; fsspec may know it
            import fsspec

            scheme, _, path = self.place.partition("://")
            try:
                return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme))), path
            except (ValueError, ImportError):
                raise InputError("out", self, reason(error, self.place)) from None
        except OSError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: OSError) -> InputError:
        return InputError("out", self, problem=f"cannot be used ({error.strerror or reason(error, self.place)})")

    def _at(self, name: str) -> tuple[fs.FileSystem, str]:
        system, root = self._filesystem
        return system, posixpath.join(root, name) if name else root

    def read(self, name: str) -> bytes | None:
        """A file's content, or None if there is no such file."""
        try:
            if self.path:
                return read_whole(self.path / name)
            system, path = self._at(name)
            with system.open_input_stream(path) as stream:
                return stream.readall()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreachable(error) from None

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
        system, path = self._at(name)
        try:
            if self.path:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                write_whole(Path(path), content)
            else:
                with system.open_output_stream(path) as stream:
                    stream.write(content)
        except OSError as error:
            raise self._unreachable(error) from None

    def add_line(self, name: str, line: str) -> None:
        """Append to a text file, unless it already holds the line."""
        lines = (self.read(name) or b"").decode(errors="replace").splitlines()
        if line not in lines:
            self.write(name, "".join(f"{one}\n" for one in [*lines, line]).encode())

    def delete(self, name: str) -> None:
        system, path = self._at(name)
        system.delete_file(path)

    def names(self, folder: str = "") -> list[str]:
        """What lies directly in a folder."""
        try:
            if self.path:
                return sorted(path.name for path in (self.path / folder).iterdir())
            system, path = self._at(folder)
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unreachable(error) from None
        return sorted(info.base_name for info in found)

    def pull(self, folder: str, to: Path) -> None:
        """Copy a folder's files to this machine."""
        to.mkdir(parents=True, exist_ok=True)
        for name in self.names(folder):
            content = self.read(f"{folder}/{name}")
            if content is not None:
                (to / name).write_bytes(content)

    def push(self, folder: str, source: Path) -> None:
        """Copy files from this machine, those that vouch for others last, so that readers never find them too early."""
        names = [path.name for path in source.iterdir() if path.is_file() and not path.name.startswith(".")]
        for name in sorted(names, key=lambda name: VOUCHING.index(name) if name in VOUCHING else -1):
            self.write(f"{folder}/{name}", (source / name).read_bytes())

    def check(self) -> None:
        """Refuse a place that cannot be written to, or that holds something else."""
        if self.path and os.path.lexists(self.path) and not self.path.is_dir():
            raise InputError("out", self, problem="is a file", hint="name a folder")
        there = self.names()
        if there and STUDY not in there:
            raise InputError("out", self, problem="is not empty and holds no study", hint="name a new folder")
