"""Between a host and its device: what is sent together goes in one copy, and results are waited for once.

Every copy between a GPU and the host's ordinary memory, in either direction, makes the host wait until all that was
launched before is done. So what is sent goes through pinned memory, and results stay where they are until everything
has been launched. On a CPU nothing is copied, and nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T")
Later = Callable[[], T]
"""A result that may be asked for once the readout that it waits in has been read."""
MOST_WAITING = 2**29
"""Bytes of results that wait on a device: with more, they are read in several copies."""
MOST_INDEXED = 2**27
"""Bytes of positions of samples that are moved to a device at a time."""
MOST_PINNED = 2**26
"""Bytes that are sent through pinned memory, which torch keeps for the next copy of that size."""


def in_blocks(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Successive items, together as long as their sizes stay within `most`; at least one at a time."""
    block: list[T] = []
    total = 0
    for item in items:
        if block and total + size(item) > most:
            yield block
            block, total = [], 0
        block.append(item)
        total += size(item)
    if block:
        yield block


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host there. Nobody waits, unless it is so large that to pin its memory would cost more."""
    if device.type == "cpu" or tensor.nbytes > MOST_PINNED:
        return tensor.to(device)
    if device.type == "cuda":
        tensor = tensor.pin_memory()  # given up here, but not used again by torch before it was copied
    return tensor.to(device, non_blocking=True)


def sent(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Arrays of one type on a device, in one copy."""
    here = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    if device.type == "cpu" or not here:
        return here
    there = to_device(torch.cat([tensor.reshape(-1) for tensor in here]), device)
    pieces = there.split([tensor.numel() for tensor in here])
    return [piece.view(tensor.shape) for piece, tensor in zip(pieces, here, strict=True)]


class Readout:
    """Results on a device that are read together."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._waiting: list[tuple[Tensor, NDArray[Any], Any]] = []

    def add(self, found: Tensor, into: NDArray[Any], at: Any = ...) -> None:
        """`into[at] = found`, now or when all is read. They must have the same type."""
        if self._device.type == "cpu":
            into[at] = found.numpy()
            return
        self._waiting.append((found, into, at))
        if sum(tensor.nbytes for tensor, _, _ in self._waiting) > MOST_WAITING:
            self.read()

    def read(self) -> None:
        """One copy of everything that waits."""
        waiting = sorted(self._waiting, key=lambda entry: -entry[0].element_size())  # so that all are aligned
        self._waiting = []
        if not waiting:
            return
        flat = torch.cat([found.reshape(-1).view(torch.uint8) for found, _, _ in waiting]).cpu().numpy()
        done = 0
        for found, into, at in waiting:
            piece = flat[done : done + found.nbytes].view(into.dtype)
            into[at] = piece.reshape(found.shape)
            done += found.nbytes
