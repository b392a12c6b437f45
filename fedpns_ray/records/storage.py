"""Where a study lies: a folder that all its machines see, or a URI of a bucket.

A path is written to as it is. A URI (s3://, gs://, and what else pyarrow and fsspec know, as in Ray Tune's storage_path) is
written to file by file: a trial works in a folder of its own machine and its files are copied there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from pyarrow import fs

from fedpns_ray.errors import InputError

LAST = ("checkpoint.npz", "summary.json")
"""Files that stand for others are copied after them."""
READERS = 16
COMMANDS = "commands.txt"
"""In a study's folder: the commands that have run it, a line each."""


class Storage:
    """Named files below one place. Travels between processes as its address alone."""

    def __init__(self, place: str | Path) -> None:
        self.place = str(place)
        self.is_uri = "://" in self.place
        self.path = None if self.is_uri else Path(self.place).absolute()

    def __reduce__(self) -> Any:
        return Storage, (self.place if self.is_uri else str(self.path),)

    def __str__(self) -> str:
        """The address as it may be shown: without the keys that a URI can carry."""
        return re.sub(r"//[^/@]*@", "//", self.place)

    @cached_property
    def _filesystem(self) -> tuple[fs.FileSystem, str]:
        if self.path:
            return fs.LocalFileSystem(), str(self.path)
        try:
            return fs.FileSystem.from_uri(self.place)
        except ValueError as error:  # not one of pyarrow's own: fsspec's, if it knows it
            import fsspec

            scheme, _, path = self.place.partition("://")
            try:
                return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme))), path
            except (ValueError, ImportError):
                raise InputError(f"out: {self} is not allowed; {' '.join(str(error).split())[:160]}") from None
        except OSError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> InputError:
        return InputError(f"out: {self} cannot be used ({' '.join(str(error).split())[:200]})")

    def _at(self, name: str) -> tuple[fs.FileSystem, str]:
        system, root = self._filesystem
        return system, posixpath.join(root, name) if name else root

    def read(self, name: str) -> bytes | None:
        """A file's content, or None if there is no such file."""
        system, path = self._at(name)
        try:
            with system.open_input_stream(path) as stream:
                return stream.readall()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreachable(error) from None

    def read_all(self, names: Iterable[str]) -> list[bytes | None]:
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(self.read, names))

    def write(self, name: str, content: bytes) -> None:
        system, path = self._at(name)
        try:
            if self.path:
                system.create_dir(posixpath.dirname(path), recursive=True)
                with system.open_output_stream(f"{path}.partial") as stream:
                    stream.write(content)
                system.move(f"{path}.partial", path)
            else:
                with system.open_output_stream(path) as stream:
                    stream.write(content)
        except OSError as error:
            raise self._unreachable(error) from None

    def add_line(self, name: str, line: str) -> None:
        """To a text file, unless it holds the line already."""
        lines = (self.read(name) or b"").decode().splitlines()
        if line not in lines:
            self.write(name, "".join(f"{one}\n" for one in [*lines, line]).encode())

    def delete(self, name: str) -> None:
        system, path = self._at(name)
        system.delete_file(path)

    def names(self, folder: str = "") -> list[str]:
        """What lies directly in a folder."""
        system, path = self._at(folder)
        try:
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
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
        """Copy files from this machine, those that stand for others last, so that a reader never finds one too early."""
        names = [path.name for path in source.iterdir() if path.is_file() and not path.name.startswith(".")]
        for name in sorted(names, key=lambda name: LAST.index(name) if name in LAST else -1):
            self.write(f"{folder}/{name}", (source / name).read_bytes())

    def check(self) -> None:
        """Refuse a place that cannot be written to, or that holds something else."""
        if self.path and self.path.exists() and not self.path.is_dir():
            raise InputError(f"out: {self} is a file; name a folder")
        there = self.names()
        if there and "study.yaml" not in there:
            raise InputError(f"out: {self} is not empty and holds no study; name a new folder")
