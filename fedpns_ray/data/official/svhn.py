"""SVHN: two MATLAB files, known by torchvision's MD5 sums of them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data.official.source import Official, download, torchvision_class, verified_content
from fedpns_ray.data.packing import copies

FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


class SvhnSource:
    """House numbers, without the extra training set."""

    mean = 0.5
    deviation = 0.5
    classes = 10

    def there(self, root: Path) -> bool:
        return any(True for name in FILES.values() for _ in copies(root / name))

    def read(self, root: Path, download: bool) -> Official:
        return Official(*_half("train", root, download), *_half("test", root, download))


def _half(split: str, root: Path, fetching: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    from scipy.io import loadmat

    kind = torchvision_class("SVHN")
    path, md5 = root / FILES[split], kind.split_list[split][2]
    data = verified_content(path, md5)
    if data is None and fetching:
        download(kind, root, split=split)
        data = verified_content(path, md5)
    if data is None:
        raise FileNotFoundError(f"{path} is missing")
    matrices = loadmat(io.BytesIO(data))
    labels = matrices["y"].astype(np.int64).reshape(-1) % 10  # the digit 0 is labelled 10 there
    return np.ascontiguousarray(matrices["X"].transpose(3, 2, 0, 1)), labels


SVHN = SvhnSource()
