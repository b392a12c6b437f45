"""Where images come from: official files, fetched once, verified by content, kept as uint8.

`FEDPNS_DATA` names the data root (default: the user's cache folder). It holds the official files, packed or not, where
torchvision lays them out, and next to them one `NAME.npz` of plain arrays, which later runs read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from fedpns_ray.atomic_file import refuse_irregular, replacing
from fedpns_ray.data.interfaces import Samples
from fedpns_ray.data.official.cifar import CIFAR10, CIFAR100
from fedpns_ray.data.official.femnist import FEMNIST
from fedpns_ray.data.official.idx import EMNIST, FASHION_MNIST, KMNIST, MNIST
from fedpns_ray.data.official.source import Source
from fedpns_ray.data.official.svhn import SVHN
from fedpns_ray.errors import InputError, Shown, one_line

SOURCES: dict[str, Source] = {
    "mnist": MNIST,
    "fashion-mnist": FASHION_MNIST,
    "kmnist": KMNIST,
    "emnist": EMNIST,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "svhn": SVHN,
    "femnist": FEMNIST,
}
"""The official files of every data set that is kept as an .npz."""
FAULTS = (OSError, EOFError, RuntimeError)
"""What the file system, the network and torchvision raise."""


def data_root() -> Path:
    return Path(os.environ.get("FEDPNS_DATA") or platformdirs.user_cache_path("fedpns")).expanduser().absolute()


def load(name: str, root: Path | None = None) -> Samples:
    """Load a data set; it is fetched first if it is missing."""
    root = root or data_root()
    prepared = root / f"{name}.npz"
    if not os.path.lexists(prepared):
        fetch(name, root)
    source = SOURCES[name]
    try:
        refuse_irregular(prepared.stat(), prepared)
        with np.load(prepared, allow_pickle=False) as arrays:
            found: dict[str, Any] = {key: arrays[key] for key in arrays.files}
        samples = Samples(**found, mean=source.mean, deviation=source.deviation, classes=source.classes)
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
    owner = samples.train_node
    if owner is not None and (owner.dtype.kind not in "iu" or owner.shape != samples.train_y.shape or owner.min() < 0):
        raise ValueError("it does not hold an owner for every image")


def fetch(name: str, root: Path | None = None) -> Path:
    """Write NAME.npz from the official files, which are downloaded if they are missing, and verified."""
    root = root or data_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        official = SOURCES[name].read(root, download=True)
        prepared = root / f"{name}.npz"
        with replacing(prepared) as partial:
            np.savez(partial, **official.arrays())
    except FAULTS as error:
        problem = f"is not in {root} and could not be fetched ({one_line(error)})"
        hint = f"with a network: `fedpns data fetch {name}`, or point FEDPNS_DATA at a folder that holds it"
        raise InputError("dataset", Shown(name), hint=hint, problem=problem) from None
    return prepared


def verify(name: str, root: Path | None = None) -> str:
    """How far the official files are as published, in words; an InputError if they are not, or NAME.npz differs."""
    root = root or data_root()
    prepared, hint = root / f"{name}.npz", f"`fedpns data fetch {name}`"
    if not standing(name, root):
        raise InputError("dataset", Shown(name), hint=hint, problem=f"is not in {root}")
    samples = load(name, root) if prepared.exists() else None
    try:
        official = SOURCES[name].read(root, download=False)
    except FAULTS as error:
        problem = f"cannot be verified: its official files in {root} cannot be read ({one_line(error)})"
        raise InputError("dataset", Shown(name), problem=problem) from None
    if samples and not all(np.array_equal(getattr(samples, key), array) for key, array in official.arrays().items()):
        raise InputError("dataset", prepared, hint=hint, problem="differs from the official files")
    return official.verified


def standing(name: str, root: Path | None = None) -> str:
    """What is there of a data set, in words; empty if nothing is."""
    root = root or data_root()
    if (root / f"{name}.npz").exists():
        return "ready"
    return "official files, not prepared yet" if SOURCES[name].there(root) else ""
