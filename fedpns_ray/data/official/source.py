"""What the families of official files have in common."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data.packing import AGAIN, content, copies
from fedpns_ray.errors import InputError

logger = logging.getLogger(__name__)

ANSWERED_WITHIN = 60.0
"""Seconds for a server to send something, while a data set is fetched."""
BY_CHECKSUM = "as published: its files have their official checksums"


class Official(NamedTuple):
    """A data set as its official files hold it, and how far they were verified."""

    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    train_node: NDArray[np.int64] | None = None
    verified: str = BY_CHECKSUM

    def arrays(self) -> dict[str, Any]:
        """By name, as an .npz holds them."""
        return {key: value for key, value in self._asdict().items() if isinstance(value, np.ndarray)}


class Source(Protocol):
    """The official files of a data set under the data root."""

    @property
    def mean(self) -> float:
        """Models see (x / 255 - mean) / deviation."""
        ...

    @property
    def deviation(self) -> float: ...

    @property
    def classes(self) -> int: ...

    def there(self, root: Path) -> bool:
        """Whether official files are there, complete or not."""
        ...

    def read(self, root: Path, download: bool) -> Official:
        """Find, verify and read them; an InputError names a file that is not what was published."""
        ...


def torchvision_class(name: str) -> Any:
    """torchvision is imported only when it is needed: for its checksums, and to download."""
    from fedpns_ray.data.torchvision_import import torchvision_datasets

    return getattr(torchvision_datasets(), name)


def download(kind: Any, root: Path, **options: Any) -> None:
    """torchvision shows its downloads and checks MD5 sums. It sets no limit for a server that does not answer."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(ANSWERED_WITHIN)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # its messages; stdout is for results
            kind(root, download=True, **options)
    finally:
        socket.setdefaulttimeout(before)


def md5_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def verified_content(path: Path, checksum: str) -> bytes | None:
    """The content of a file whose SHA-256 or MD5 is known, however it is packed; None if there is no copy of it.

    Every copy that is there must be right: the next reader may take another one.
    """
    found = None
    for copy in copies(path):
        found = content(copy)
        digest = md5_of(found) if len(checksum) == 32 else hashlib.sha256(found).hexdigest()
        if digest != checksum:
            raise InputError("dataset", copy, hint=AGAIN, problem="does not have its official checksum")
    return found
