"""Where samples come from: MNIST, Fashion-MNIST and CIFAR-10, fetched once, verified, kept as uint8.

`FEDPNS_DATA` names the data root (default: the user's cache folder). It holds the official files as torchvision or
CIFAR-10's binary version lays them out, and next to them one `NAME.npz` of plain arrays, which later runs read.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import lzma
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from fedpns_ray.atomic_file import refuse_irregular, replacing
from fedpns_ray.data.interfaces import Samples
from fedpns_ray.errors import InputError, Shown, one_line

IMAGES = {
    "mnist": ("MNIST", 0.1307, 0.3081),
    "fashion-mnist": ("FashionMNIST", 0.2860, 0.3530),
    "cifar10": ("CIFAR10", 0.5, 0.5),
}
"""Data set → (torchvision's class, mean, standard deviation). Models see (x / 255 - mean) / deviation."""

CIFAR10_BINARY = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
"""SHA-256 of the files of CIFAR-10's binary version, which may also be stored as .bin.xz."""

AGAIN = "delete it and fetch again"


def data_root() -> Path:
    return Path(os.environ.get("FEDPNS_DATA") or platformdirs.user_cache_path("fedpns")).expanduser().absolute()


def load(name: str, root: Path | None = None) -> Samples:
    """Load a data set; it is fetched first if it is missing."""
    root = root or data_root()
    prepared = root / f"{name}.npz"
    if not os.path.lexists(prepared):
        fetch(name, root)
    _, mean, deviation = IMAGES[name]
    try:
        refuse_irregular(prepared.stat(), prepared)
        with np.load(prepared, allow_pickle=False) as arrays:
            samples = Samples(**{key: arrays[key] for key in arrays.files}, mean=mean, deviation=deviation)
        _refuse_odd(samples)
        return samples
    except Exception as error:  # a damaged archive may raise anything, from zipfile's own errors to a MemoryError
        hint = f"`fedpns data fetch {name}` writes it again"
        problem = f"is damaged ({one_line(getattr(error, 'strerror', None) or error)})"
        raise InputError("dataset", prepared, hint=hint, problem=problem) from None


def _refuse_odd(samples: Samples) -> None:
    """A ValueError for arrays that are not images with labels."""
    for x, y in ((samples.train_x, samples.train_y), (samples.test_x, samples.test_y)):
        if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1:] != samples.shape or not len(x):
            raise ValueError("it does not hold images")
        if y.dtype.kind not in "iu" or y.shape != x.shape[:1] or y.min() < 0 or y.max() >= samples.classes:
            raise ValueError("it does not hold a label for every image")


def fetch(name: str, root: Path | None = None) -> Path:
    """Write NAME.npz from the official files, which are downloaded if they are missing, and verified."""
    root = root or data_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        train, test = _official(name, root, download=True)
        prepared = root / f"{name}.npz"
        with replacing(prepared) as partial:
            np.savez(partial, train_x=train[0], train_y=train[1], test_x=test[0], test_y=test[1])
    except (OSError, EOFError, RuntimeError, lzma.LZMAError) as error:
        problem = f"is not in {root} and could not be fetched ({one_line(error)})"
        hint = f"with a network: `fedpns data fetch {name}`, or point FEDPNS_DATA at a folder that holds it"
        raise InputError("dataset", Shown(name), hint=hint, problem=problem) from None
    return prepared


def verify(name: str, root: Path | None = None) -> None:
    """Check that the official files have their official checksums, and that NAME.npz holds the same data."""
    root = root or data_root()
    prepared, hint = root / f"{name}.npz", f"`fedpns data fetch {name}`"
    if not prepared.exists():
        raise InputError("dataset", Shown(name), hint=hint, problem=f"is not in {root}")
    samples = load(name, root)
    try:
        train, test = _official(name, root, download=False)
    except (OSError, EOFError, RuntimeError, lzma.LZMAError) as error:
        problem = f"cannot be verified: its official files in {root} cannot be read ({one_line(error)})"
        raise InputError("dataset", Shown(name), problem=problem) from None
    ours: tuple[NDArray[Any], ...] = (samples.train_x, samples.train_y, samples.test_x, samples.test_y)
    official: tuple[NDArray[Any], ...] = (*train, *test)
    if not all(np.array_equal(a, b) for a, b in zip(ours, official, strict=True)):
        raise InputError("dataset", prepared, hint=hint, problem="differs from the official files")


Half = tuple[NDArray[np.uint8], NDArray[np.int64]]


def _official(name: str, root: Path, download: bool) -> tuple[Half, Half]:
    binary = name == "cifar10" and (root / "cifar-10-batches-bin").is_dir()
    return _cifar10_binary(root) if binary else _torchvision(name, root, download)


def _torchvision(name: str, root: Path, download: bool) -> tuple[Half, Half]:
    """Read by torchvision, which shows its downloads and checks MD5 sums; it is imported only when needed."""
    from fedpns_ray.data.torchvision_import import torchvision_datasets

    kind = getattr(torchvision_datasets(), IMAGES[name][0])
    if name != "cifar10":
        _check_md5(root / kind.__name__ / "raw", kind.resources, missing_is_fine=download)

    def read(train: bool) -> Half:
        with contextlib.redirect_stdout(sys.stderr):  # torchvision's messages; stdout is for results
            half = kind(root, train=train, download=download)
        images = np.asarray(half.data)
        planes = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(planes), np.asarray(half.targets, dtype=np.int64)

    return read(train=True), read(train=False)


def _check_md5(raw: Path, resources: list[tuple[str, str]], missing_is_fine: bool) -> None:
    """torchvision checks files that it downloads, but trusts those already unpacked: unpack them again and compare."""
    for name, md5 in resources:
        packed, unpacked = raw / name, raw / name.removesuffix(".gz")
        if not packed.exists():
            if missing_is_fine and not unpacked.exists():
                continue
            problem = f"is missing, so {unpacked.name} cannot be verified"
            raise InputError("dataset", packed, hint=f"delete {unpacked.name} and fetch again", problem=problem)
        if hashlib.md5(packed.read_bytes(), usedforsecurity=False).hexdigest() != md5:
            raise InputError("dataset", packed, hint=AGAIN, problem="does not have its official checksum")
        if unpacked.exists() and unpacked.read_bytes() != gzip.decompress(packed.read_bytes()):
            raise InputError("dataset", unpacked, hint=AGAIN, problem=f"differs from {packed.name}")


def _cifar10_binary(root: Path) -> tuple[Half, Half]:
    """Records of one label byte and 3,072 pixel bytes, RGB planes, 10,000 per file."""

    def read(name: str) -> NDArray[np.uint8]:
        path = root / "cifar-10-batches-bin" / name
        packed = path.with_name(f"{name}.xz")
        content = path.read_bytes() if path.exists() else lzma.decompress(packed.read_bytes())
        if hashlib.sha256(content).hexdigest() != CIFAR10_BINARY[name]:
            raise RuntimeError(f"{path if path.exists() else packed} does not have the official checksum")
        return np.frombuffer(content, dtype=np.uint8).reshape(10_000, 3_073)

    def split(records: NDArray[np.uint8]) -> Half:
        return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)

    *batches, test = (read(name) for name in CIFAR10_BINARY)
    return split(np.concatenate(batches)), split(test)
