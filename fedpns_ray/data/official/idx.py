"""MNIST and the data sets of its form: four files of images and labels in the idx format, big-endian.

MNIST's files are known by the SHA-256 of what they contain. Of the others, only the MD5 of the packed files is known,
from torchvision: a packed file that has it vouches for every other copy. Where none is there, an unpacked copy, or one
that was packed again, is accepted if it has the published number of images of every label, with a warning that no more
is known.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.atomic_file import read_whole
from fedpns_ray.data.official.source import (
    BY_CHECKSUM,
    Official,
    download,
    logger,
    md5_of,
    torchvision_class,
    verified_content,
)
from fedpns_ray.data.packing import AGAIN, content, copies
from fedpns_ray.errors import InputError

BY_COUNTS = "of the published form: {}; their bytes cannot be verified without the packed files that were published"
PIXELS = 28
FILES = tuple(f"{half}-{what}-ubyte" for half in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
"""Training images and labels, test images and labels."""


class Found(NamedTuple):
    """What a file contains, where it was found, and whether a checksum vouches for it."""

    data: bytes
    where: Path
    vouched: bool

    def refused(self, problem: str) -> InputError:
        return InputError("dataset", self.where, hint=AGAIN, problem=problem)


@dataclass(frozen=True)
class IdxSource:
    """The files of one data set."""

    kind: str
    """torchvision's class, which is also the folder."""
    each: tuple[int, int] = (6000, 1000)
    """Images of every label in the training and the test set, where no content is known."""
    sha256: tuple[str, ...] = ()
    """Of what the four files contain, in the order of `files`."""
    mean: float = 0.5
    deviation: float = 0.5
    classes: int = 10
    files: tuple[str, ...] = FILES
    split: str = ""
    """EMNIST's: one of several sets in one archive."""

    def there(self, root: Path) -> bool:
        return any(True for name in self.files for _ in self._copies(root, name)) or self._archive(root).exists()

    def read(self, root: Path, download: bool) -> Official:
        found = [self._content(root, k) for k in range(4)]
        if download and None in found:
            self._download(root)
            found = [self._content(root, k) for k in range(4)]
        for k, one in enumerate(found):
            if one is None:
                raise FileNotFoundError(f"{self._raw(root) / self.files[k]} is missing")
        contents = [one for one in found if one is not None]
        train, test = (self._half(contents[2 * k], contents[2 * k + 1], self.each[k]) for k in range(2))
        verified = BY_CHECKSUM
        if not all(one.vouched for one in contents):
            verified = BY_COUNTS.format(f"{self.each[0]} and {self.each[1]} images of a label")
            logger.warning("%s is %s", self._raw(root), verified)
        return Official(*train, *test, verified=verified)

    def _half(self, pictures: Found, names: Found, each: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The images and labels of the training or the test set."""
        x, y = _images(pictures), _labels(names)
        if len(x) != len(y) or y.max() >= self.classes:
            raise names.refused("does not have a label for every image")
        if not self.sha256 and np.bincount(y, minlength=self.classes).tolist() != [each] * self.classes:
            raise names.refused(f"does not have {each} images of each of {self.classes} labels, as published")
        return x, y

    def _content(self, root: Path, k: int) -> Found | None:
        name = self.files[k]
        if self.sha256:
            data = verified_content(self._raw(root) / name, self.sha256[k])
            return None if data is None else Found(data, self._raw(root) / name, vouched=True)
        first = self._vouched(root, name)
        for copy in self._copies(root, name):
            found = Found(content(copy), copy, vouched=False)
            first = first or found
            if found.data != first.data:
                raise found.refused(f"differs from {first.where.name}")
        return first

    def _vouched(self, root: Path, name: str) -> Found | None:
        """The content of a file as published, from a packed file that has its official MD5."""
        kind = torchvision_class(self.kind)
        if self.split:
            data = read_whole(self._archive(root))
            if data is None or md5_of(data) != kind.md5:
                return None
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                return Found(gzip.decompress(archive.read(f"gzip/{name}.gz")), self._archive(root), vouched=True)
        packed = self._raw(root) / f"{name}.gz"
        data = read_whole(packed)
        official = dict(kind.resources)[packed.name]
        is_official = data is not None and md5_of(data) == official
        return Found(content(packed), packed, vouched=True) if is_official else None

    def _copies(self, root: Path, name: str) -> Iterator[Path]:
        yield from copies(self._raw(root) / name)
        if self.split:
            yield from copies(self._raw(root) / "gzip" / name)

    def _download(self, root: Path) -> None:
        download(torchvision_class(self.kind), root, train=True, **({"split": self.split} if self.split else {}))

    def _raw(self, root: Path) -> Path:
        return root / self.kind / "raw"

    def _archive(self, root: Path) -> Path:
        return self._raw(root) / "gzip.zip"


def _images(found: Found) -> NDArray[np.uint8]:
    header = np.frombuffer(found.data[:16], dtype=np.uint8).view(">i4") if len(found.data) >= 16 else np.zeros(4)
    if header[0] != 2051 or header[2] != PIXELS or header[3] != PIXELS:
        raise found.refused(f"does not hold images of {PIXELS} x {PIXELS} pixels")
    if len(found.data) != 16 + int(header[1]) * PIXELS**2 or not header[1]:
        raise found.refused(f"does not hold the {header[1]} images that it names")
    return np.frombuffer(found.data, dtype=np.uint8, offset=16).reshape(-1, 1, PIXELS, PIXELS)


def _labels(found: Found) -> NDArray[np.int64]:
    header = np.frombuffer(found.data[:8], dtype=np.uint8).view(">i4") if len(found.data) >= 8 else np.zeros(2)
    if header[0] != 2049 or len(found.data) != 8 + int(header[1]) or not header[1]:
        raise found.refused("does not hold labels")
    return np.frombuffer(found.data, dtype=np.uint8, offset=8).astype(np.int64)


MNIST = IdxSource(
    "MNIST",
    sha256=(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    mean=0.1307,
    deviation=0.3081,
)
FASHION_MNIST = IdxSource("FashionMNIST", mean=0.2860, deviation=0.3530)
KMNIST = IdxSource("KMNIST")
EMNIST = IdxSource(
    "EMNIST",
    each=(2400, 400),
    classes=47,
    files=tuple(f"emnist-balanced-{name.replace('t10k', 'test')}" for name in FILES),
    split="balanced",
)
"""The split with as many images of every class; upper and lower case are one class where they look alike."""
