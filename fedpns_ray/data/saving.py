"""From Python objects to a data set: arrays, or any torch Dataset, become a file that every worker can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.atomic_file import replacing
from fedpns_ray.data.checking import checked_samples, count_classes
from fedpns_ray.data.interfaces import Samples
from fedpns_ray.errors import InputError, Shown, one_line


def save_data(path: Path | str, train: Any, test: Any, train_node: Any = None) -> dict[str, str]:
    """Write a data set to an .npz file, and return the settings that name it.

    >>> Experiment(**save_data("mine.npz", train, test), model="mlr")  # doctest: +SKIP

    `train` and `test` are each a pair of arrays (x, y), or a torch Dataset of such pairs; `train_node` is the owner of
    each training sample. They are checked first: what could not be trained on is not written.
    """
    where = Path(path).absolute()
    (train_x, train_y), (test_x, test_y) = _arrays("train", train), _arrays("test", test)
    classes = count_classes(train_y, test_y)
    samples = checked_samples(
        Samples(train_x, train_y, test_x, test_y, 0.0, 1.0, classes, train_node), "data", Shown("given")
    )
    owners = {} if train_node is None else {"train_node": np.asarray(train_node)}
    arrays = {name: getattr(samples, name) for name in ("train_x", "train_y", "test_x", "test_y")} | owners
    with replacing(where) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)
    return {"dataset": "file", "data_file": str(where)}


def _arrays(name: str, data: Any) -> tuple[Any, Any]:
    """The features and the labels of a pair of arrays or of a map-style data set."""
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return data[0], data[1]
    try:
        pairs = [data[k] for k in range(len(data))]
        labels = np.array([int(y) for _, y in pairs], dtype=np.int64)
        return np.stack([_sample(x) for x, _ in pairs]), labels
    except Exception as error:  # the data set is the user's: whatever it raises is for them to see
        allowed = "it must be a pair of arrays (x, y), or a torch Dataset of such pairs with a length"
        problem = f"cannot be read ({type(error).__name__}: {one_line(error)})"
        raise InputError(name, Shown(type(data).__name__), allowed, problem=problem) from None


def _sample(x: Any) -> NDArray[Any]:
    """A tensor or an array as it is; a PIL image with its channels first."""
    found = np.asarray(x)
    is_picture = hasattr(x, "getbands") and found.ndim == 3
    return found.transpose(2, 0, 1) if is_picture else found
