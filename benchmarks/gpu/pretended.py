"""A device that is not there: tensors on it hold real numbers, and meet no tensor of the CPU.

Its operators are the CPU's, so a worker runs on it from end to end and gives the CPU's numbers. As on CUDA, an operator
with tensors of two devices is refused, but for a number without dimensions; only copies cross. It goes by the name of
torch's meta device, which every build of torch knows, and for which autograd needs no thread of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

NAME = "meta"
CROSSING = ("aten::_to_copy", "aten::copy_")


class MixedDevices(RuntimeError):
    """What CUDA would refuse: `Expected all tensors to be on the same device`."""


class There(Tensor):
    """A tensor on the device that is not there; its numbers are in `here`."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> There:
        made = Tensor._make_wrapper_subclass(
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=torch.device(NAME),
        )
        made.here = here
        return made

    @property
    def data(self) -> Tensor:
        return There(self.here.data)

    @data.setter
    def data(self, value: Tensor) -> None:
        """A parameter that is made a view of other numbers computes with these from then on."""
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.here = _here(value)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _computed(func, args, kwargs or {})


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operator on the CPU's numbers, if all its tensors are on one device."""
    leaves, shape = tree_flatten((args, kwargs))
    there = [leaf for leaf in leaves if isinstance(leaf, There)]
    here = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, There) and leaf.ndim]
    crossing = func._schema.name in CROSSING
    if there and here and not crossing:
        raise MixedDevices(f"{func} was given tensors of shape {tuple(here[0].shape)} on cpu and others on {NAME}")
    if crossing and func._schema.name == "aten::copy_":
        result_there = isinstance(args[0], There)
    elif kwargs.get("device") is not None:
        result_there = torch.device(kwargs["device"]).type == NAME
    else:
        result_there = bool(there)
    real = [_here(leaf) for leaf in leaves]
    real_args, real_kwargs = tree_unflatten(real, shape)
    found = func(*real_args, **real_kwargs)
    if torch.Tag.inplace_view in func.tags and isinstance(args[0], There):
        with no_dispatch():  # the shape of the wrapper follows
            func(*args, **kwargs)
    known = {id(one): leaf for one, leaf in zip(real, leaves, strict=True) if isinstance(leaf, There)}

    def back(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return known.get(id(value)) if id(value) in known else (There(value) if result_there else value)

    return tree_map(back, found)


def _here(leaf: Any) -> Any:
    if isinstance(leaf, There):
        return leaf.here
    return torch.device("cpu") if isinstance(leaf, torch.device) and leaf.type == NAME else leaf


class _Pretending(TorchDispatchMode):
    """Makes tensors on the device where operators without any tensor are asked to."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


@contextmanager
def pretended_device() -> Iterator[str]:
    """The name of the device, which is there as long as the context is open."""
    with _Pretending():
        yield NAME
