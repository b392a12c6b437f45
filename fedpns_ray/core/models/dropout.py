"""Dropout of nodes that train together: every node's masks come from its own stream, in any company.

They are drawn on the host, in the order and with the calls of a node that trains alone on a CPU. So a node drops the
same units alone, in any cohort and on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedpns_ray.core.transfers import in_blocks, sent

if TYPE_CHECKING:
    from fedpns_ray.core.models.flat import FlatModel

Masks = tuple[Tensor, ...]
"""The factors of one step, in the order of the calls: 0, or 1 / (1 - p)."""
MOST_DRAWN = 2**26
"""Bytes of masks that are drawn and sent at a time; at least those of one step."""
KEPT_DIMENSIONS: dict[Any, Callable[[int], int]] = {
    F.dropout: lambda dimensions: dimensions,
    F.dropout1d: lambda dimensions: dimensions - 1,
    F.dropout2d: lambda dimensions: 2,
    F.dropout3d: lambda dimensions: dimensions - 3,
}
"""How many of the first dimensions of an input have masks of their own; whole channels share one."""


class Call(NamedTuple):
    """One use of dropout in a step of one node."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    p: float

    @property
    def bytes(self) -> int:
        return 4 * torch.Size(self.shape).numel()

    def draw(self, generator: torch.Generator) -> Tensor:
        """The same numbers in the same order as torch's own dropout on a CPU."""
        mask = torch.empty_strided(self.shape, self.stride)
        if self.p in (0, 1):
            return mask.fill_(1 - self.p)
        return mask.bernoulli_(1 - self.p, generator=generator).div_(1 - self.p)


class NodeDropout:
    """The masks of cohorts of one model."""

    def __init__(self, model: FlatModel, inputs: Callable[[int], Tensor]) -> None:
        """`inputs` makes a batch of a size, to see which calls a step of that size makes."""
        self._model, self._inputs = model, inputs
        self._known: dict[int, tuple[Call, ...]] = {}

    def masks(self, seeds: Sequence[int], sizes: Iterable[int]) -> Iterator[Masks]:
        """The masks of every step of a cohort, given the seed of each node and the sizes of their batches."""
        device = self._model.weights.device
        generators = {seed: torch.Generator().manual_seed(seed) for seed in seeds}
        for block in in_blocks(
            map(self._calls, sizes), lambda step: len(seeds) * sum(c.bytes for c in step), MOST_DRAWN
        ):
            if not any(block):
                yield from repeat((), len(block))
                continue
            drawn = [[{seed: call.draw(g) for seed, g in generators.items()} for call in step] for step in block]
            flat = [torch.stack([each[seed] for seed in seeds]).numpy() for step in drawn for each in step]
            there = iter(sent(flat, device))
            yield from (tuple(next(there) for _ in step) for step in block)

    @torch.no_grad()
    def _calls(self, size: int) -> tuple[Call, ...]:
        if size not in self._known:
            with (watching := _Watching()), torch.random.fork_rng(devices=[]):
                self._model.module.train()(self._inputs(size))
            self._model.reset_buffers()
            self._known[size] = tuple(watching.calls)
        return self._known[size]


class _Dropping(TorchFunctionMode):
    """Sees every use of dropout in training."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in KEPT_DIMENSIONS or not _argument("training", 2, True, args, kwargs):
            return func(*args, **kwargs)
        x, p = _argument("input", 0, None, args, kwargs), float(_argument("p", 1, 0.5, args, kwargs))
        return self.dropped(x, p, KEPT_DIMENSIONS[func](x.ndim), _argument("inplace", 3, False, args, kwargs))

    def dropped(self, x: Tensor, p: float, kept: int, inplace: bool) -> Tensor:
        raise NotImplementedError


def _argument(name: str, position: int, default: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return args[position] if position < len(args) else kwargs.get(name, default)


class _Watching(_Dropping):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def dropped(self, x: Tensor, p: float, kept: int, inplace: bool) -> Tensor:
        shape = (*x.shape[:kept], *(1 for _ in x.shape[kept:]))
        stride = x.stride() if kept == x.ndim else torch.empty(shape, device="meta").stride()
        self.calls.append(Call(shape, stride, p))
        return x


class Given(_Dropping):
    """Dropout with masks that have been drawn."""

    def __init__(self, masks: Masks) -> None:
        super().__init__()
        self._left = iter(masks)

    def dropped(self, x: Tensor, p: float, kept: int, inplace: bool) -> Tensor:
        return x.mul_(next(self._left)) if inplace else x * next(self._left)
