"""What a device is asked to do: operators, copies between it and the host, and waits."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CROSSING = ("aten::_to_copy", "aten::copy_")
READING = "aten::_local_scalar_dense"
FREE = (
    "aten::_unsafe_view",
    "aten::lift_fresh",
    "aten::detach",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
)
"""Operators that launch nothing, though they return something new."""


class Counter(TorchDispatchMode):
    """Counts the operators whose tensors are on a device. Operators that run on the host alone are not counted."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        self.operators = 0
        """All of them, with views."""
        self.launches = 0
        """Those that compute: views, empty tensors and copies to and from the host are left out."""
        self.sent = 0
        """Copies from the host to the device."""
        self.waits = 0
        """Copies from the device to the host, numbers that are read, and copies to the device that are not told not to
        wait: CUDA makes the host wait in each until all that was launched before is done."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        given = {leaf.device.type for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        made = {leaf.device.type for leaf in tree_leaves(found) if isinstance(leaf, Tensor)}
        if self._device not in given | made:
            return found
        self.operators += 1
        name = func._schema.name
        if name == READING or (name in CROSSING and made == {"cpu"} != {self._device}):
            self.waits += 1
        elif name in CROSSING and "cpu" in given and self._device != "cpu":
            self.sent += 1
            self.waits += not ((kwargs or {}).get("non_blocking") or args[2:3] == (True,))
        elif name not in FREE and not _is_view(func):
            self.launches += 1
        return found


def _is_view(func: Any) -> bool:
    """Whether an operator returns other views of its inputs, and computes nothing."""
    returned = func._schema.returns
    return bool(returned) and all(one.alias_info is not None and not one.alias_info.is_write for one in returned)
