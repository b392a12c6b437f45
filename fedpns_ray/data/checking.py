"""Whether arrays are a data set: what a file, a user's code or another library hands over is checked here, once."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data.interfaces import Samples
from fedpns_ray.errors import InputError

MOST_CLASSES = 100_000
"""A larger label is taken for a mistake: a model has one output for each class."""
KINDS = "it must hold float32, float64, uint8 images or integer tokens"
IMAGES = "images must have the shape (N, H, W) or (N, C, H, W); other numbers of this size are stored as float32"


def checked_samples(samples: Samples, field: str, value: object) -> Samples:
    """The samples as models and partitions expect them: float32, uint8 (N, C, H, W) or int64, with int64 labels.

    An InputError about `value` of `field`, which names the array and what is wrong with it, if they are not a data set.
    """
    from fedpns_ray.core.tasks import find_task

    find_task(samples.task)  # refused if it is unknown
    try:
        _refuse_odd_numbers(samples)
        train_x, test_x = (_features(name, getattr(samples, name)) for name in ("train_x", "test_x"))
        if (train_x.dtype, train_x.shape[1:]) != (test_x.dtype, test_x.shape[1:]):
            raise Misfit("test_x", f"has samples of {_kind(test_x)}, and those of train_x are {_kind(train_x)}")
        train_y, test_y = _targets(samples, "train_y", len(train_x)), _targets(samples, "test_y", len(test_x))
        owners = None if samples.train_node is None else _owners(samples.train_node, len(train_x))
    except Misfit as error:
        raise InputError(field, value, error.allowed, problem=f"cannot be used: {error}") from None
    arrays: dict[str, Any] = {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}
    return replace(samples, **arrays, train_node=owners)


def count_classes(*labels: Any) -> int:
    """The largest label + 1, of labels that may still be anything; `checked_samples` says what is wrong."""
    with np.errstate(all="ignore"):
        arrays = [np.asarray(y) for y in labels]
        largest = [y.max() for y in arrays if y.dtype.kind in "iuf" and y.size]
        return 1 + int(max((min(y, MOST_CLASSES - 1) for y in largest if y >= 0), default=0))


def _refuse_odd_numbers(samples: Samples) -> None:
    """What is no array: the number of classes, which sizes the model, and how images are scaled."""
    if not isinstance(samples.classes, (int, np.integer)) or not 1 <= samples.classes <= MOST_CLASSES:
        raise Misfit("classes", f"is {samples.classes!r}", f"it must be a whole number from 1 to {MOST_CLASSES:,}")
    for name, least in (("mean", -np.inf), ("deviation", 0)):
        value = getattr(samples, name)
        if not isinstance(value, Real) or not least < float(value) < np.inf:
            raise Misfit(name, f"is {value!r}", f"it must be a finite number{' above 0' if least == 0 else ''}")


class Misfit(ValueError):
    """What is wrong with an array, and what is allowed."""

    def __init__(self, array: str, problem: str, allowed: str = "") -> None:
        super().__init__(f"{array} {problem}")
        self.allowed = allowed


def _array(name: str, value: Any) -> NDArray[Any]:
    """Anything that numpy can make an array of without pickle; torch tensors are among it."""
    try:
        found = np.asarray(value)
    except Exception as error:  # lists of unequal lengths, tensors on a GPU: the user needs the library's own words
        raise Misfit(name, f"is not an array ({type(error).__name__}: {error})") from None
    if found.dtype.hasobject:
        raise Misfit(name, "holds Python objects", KINDS)
    if found.ndim and not len(found):
        raise Misfit(name, "is empty")
    return found


def _features(name: str, value: Any) -> NDArray[Any]:
    x = _array(name, value)
    if x.dtype.kind not in "fiu":
        raise Misfit(name, f"holds {x.dtype}", KINDS)
    if x.ndim < 2 or not x.size:
        raise Misfit(name, f"has the shape {x.shape}", "its first axis counts samples, the others hold what is seen")
    if x.dtype == np.uint8:
        if x.ndim not in (3, 4):
            raise Misfit(name, f"has the shape {x.shape}", IMAGES)
        return np.ascontiguousarray(x if x.ndim == 4 else x[:, None])
    if x.dtype.kind in "iu":
        if x.min() < 0 or x.max() > np.iinfo(np.int64).max:
            raise Misfit(name, f"holds the token {_first(x, (x < 0) | (x > np.iinfo(np.int64).max))}", "0 or above")
        return np.ascontiguousarray(x, dtype=np.int64)
    return _finite(name, x)


def _finite(name: str, x: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is refused
        single = np.ascontiguousarray(x, dtype=np.float32)
    wrong = ~np.isfinite(single)
    if count := int(wrong.sum()):
        values = "value that is" if count == 1 else "values that are"
        raise Misfit(name, f"holds {count:,} {values} not finite as float32, the first at {_position(wrong)}")
    return single


def _targets(samples: Samples, name: str, count: int) -> NDArray[Any]:
    """What is to be predicted: labels, one for each sample or, of a text, one for each position; or numbers."""
    y = _array(name, getattr(samples, name))
    task = samples.task
    if y.shape[:1] != (count,) or (task == "classification" and y.ndim > 1):
        raise Misfit(name, f"has the shape {y.shape}, and there are {count:,} samples", f"it must be ({count},)")
    if task == "regression" and y.dtype.kind in "fiu":
        return _finite(name, y)
    return _labels(name, y, samples.classes)


def _labels(name: str, y: NDArray[Any], classes: int) -> NDArray[np.int64]:
    allowed = f"labels are whole numbers from 0 to {classes - 1}"
    if y.dtype.kind not in "iuf":
        raise Misfit(name, f"holds {y.dtype}", allowed)
    if y.dtype.kind == "f" and (broken := y != np.floor(y)).any():  # NaN is not equal to itself
        raise Misfit(name, f"holds {_first(y, broken)}", allowed)
    if (beyond := (y < 0) | (y >= classes)).any():
        raise Misfit(name, f"holds the label {_first(y, beyond)}", allowed)
    return np.ascontiguousarray(y, dtype=np.int64)


def _owners(value: Any, count: int) -> NDArray[np.int64]:
    """Owners may have any numbers or names; they are counted 0, 1, … in their order."""
    owners = _array("train_node", value)
    if owners.shape != (count,):
        raise Misfit("train_node", f"has the shape {owners.shape}", f"it must be ({count},): the owner of each sample")
    if owners.dtype.kind not in "iuUS":
        raise Misfit("train_node", f"holds {owners.dtype}", "owners are integers or names")
    return np.unique(owners, return_inverse=True)[1].astype(np.int64)


def _first(values: NDArray[Any], wrong: NDArray[np.bool_]) -> str:
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return f"{values[at]} at {_position(wrong)}"


def _position(wrong: NDArray[np.bool_]) -> str:
    return str([int(k) for k in np.unravel_index(int(np.argmax(wrong)), wrong.shape)])


def _kind(x: NDArray[Any]) -> str:
    return f"{x.dtype} {x.shape[1:]}"
