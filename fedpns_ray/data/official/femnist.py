"""FEMNIST as LEAF's preprocessing leaves it: JSON files of writers, each with its images and labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data.official.source import Official
from fedpns_ray.data.packing import UNPACK, content
from fedpns_ray.errors import InputError, Shown, one_line

PIXELS = 28
HALVES = ("train", "test")
VERIFIED = "in LEAF's layout: {} images of {} writers; LEAF samples the data anew for every user and has no checksums"
Writers = dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]


class FemnistSource:
    """`femnist/train/*.json` and `femnist/test/*.json`, packed or not."""

    mean = 0.5
    deviation = 0.5
    classes = 62

    def there(self, root: Path) -> bool:
        return bool(self.files(root, "train"))

    def files(self, root: Path, half: str) -> list[Path]:
        found = (path for ending in UNPACK for path in (root / "femnist" / half).glob(f"*.json{ending}"))
        return sorted(found)

    def read(self, root: Path, download: bool) -> Official:
        for half in HALVES:
            if not self.files(root, half):
                hint = "data/femnist/preprocess.sh of https://github.com/TalwalkarLab/leaf makes them"
                raise InputError(
                    "dataset", Shown("femnist"), hint=hint, problem=f"has no files {half}/*.json in {root}"
                )
        train, test = (self._writers(self.files(root, half)) for half in HALVES)
        owner = np.repeat(np.arange(len(train)), [len(y) for _, y in train.values()])
        verified = VERIFIED.format(f"{len(owner):,}", f"{len(train):,}")
        return Official(*_joined(train), *_joined(test), owner, verified)

    def _writers(self, files: list[Path]) -> Writers:
        """Every writer's images and labels, in the order of their names, whichever files they lie in."""
        found: Writers = {}
        for path in files:
            for writer, (x, y) in _parsed(path).items():
                if writer in found:
                    raise InputError("dataset", path, problem=f"holds writer {writer}, as another file does")
                found[writer] = _checked(x, y, self.classes, path, writer)
        if not sum(len(y) for _, y in found.values()):
            raise InputError("dataset", files[0].parent, problem="holds no images")
        return {writer: found[writer] for writer in sorted(found) if len(found[writer][1])}


def _parsed(path: Path) -> dict[str, tuple[Any, Any]]:
    try:
        whole = json.loads(content(path))
        data = {user: (whole["user_data"][user]["x"], whole["user_data"][user]["y"]) for user in whole["users"]}
        counts = [len(y) for _, y in data.values()]
        if counts != list(whole["num_samples"]) or counts != [len(x) for x, _ in data.values()]:
            raise ValueError("num_samples does not count its images and labels")
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        allowed = "it must hold users, num_samples and user_data: {user: {x: …, y: …}}"
        raise InputError("dataset", path, allowed, problem=f"is not in LEAF's layout ({reason})") from None
    return data


def _checked(x: Any, y: Any, classes: int, path: Path, writer: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Floats from 0 to 1 as bytes: they were bytes before LEAF divided them by 255."""
    try:
        pixels, labels = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    except (ValueError, TypeError):
        pixels, labels = np.zeros(0), np.zeros(1)
    if pixels.shape != (len(labels), PIXELS**2) and len(labels):
        problem = f"holds an image of writer {writer} that is not {PIXELS**2} numbers"
        raise InputError("dataset", path, problem=problem)
    if not ((pixels >= 0) & (pixels <= 1)).all():
        problem = f"holds a pixel of writer {writer} that is not from 0 to 1"
        raise InputError("dataset", path, problem=problem)
    if not (np.isin(labels, np.arange(classes))).all():
        problem = f"holds a label of writer {writer} that is not from 0 to {classes - 1}"
        raise InputError("dataset", path, problem=problem)
    return np.rint(255 * pixels).astype(np.uint8).reshape(-1, 1, PIXELS, PIXELS), labels.astype(np.int64)


def _joined(writers: Writers) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return np.concatenate([x for x, _ in writers.values()]), np.concatenate([y for _, y in writers.values()])


FEMNIST = FemnistSource()
