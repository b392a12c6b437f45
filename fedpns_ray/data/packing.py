"""Files that may lie packed or unpacked: what counts is their content."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from fedpns_ray.atomic_file import read_whole, refuse_irregular
from fedpns_ray.errors import InputError, one_line

UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".bz2": bz2.decompress,
}
"""How a file may be packed, by the ending that its name has then."""
AGAIN = "delete it and fetch again"


def copies(path: Path) -> Iterator[Path]:
    """Every copy of a file that is there, packed or not."""
    for ending in UNPACK:
        copy = path.with_name(path.name + ending)
        if os.path.lexists(copy):
            yield copy


def content(copy: Path) -> bytes:
    """What a copy holds once it is unpacked."""
    packed = read_whole(copy)
    if packed is None:
        raise FileNotFoundError(f"{copy} is missing")
    try:
        return UNPACK.get(copy.suffix, bytes)(packed)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        problem = f"is damaged: it cannot be unpacked ({one_line(error)})"
        raise InputError("dataset", copy, hint=AGAIN, problem=problem) from None


def bytes_of_arrays(path: Path) -> int:
    """What the arrays of an .npz file take before compression, as it says itself; 0 if it cannot be read."""
    try:
        refuse_irregular(path.stat(), path)
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    except (OSError, zipfile.BadZipFile):  # to load it says what is wrong
        return 0
