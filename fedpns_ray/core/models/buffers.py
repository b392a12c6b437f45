"""Buffers: what a module keeps beside its parameters, and how one node's are kept from the next."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


class Buffers:
    """A module's buffers (running statistics, counters, masks) as they are now, to be put back later.

    They are neither sent nor averaged. If they were kept, they would carry what one node has seen to the next node of
    the same process, and results would depend on the layout.
    """

    def __init__(self, module: nn.Module) -> None:
        self._held = [(m, dict(m._buffers.items())) for m in module.modules()]
        found = {id(b): b for _, held in self._held for b in held.values() if b is not None and _can_be_written(b)}
        self._values = [(buffer, buffer.detach().clone()) for buffer in found.values()]

    @torch.no_grad()
    def restore(self) -> None:
        """The same tensors in the same places with the same values, even if some were changed, replaced or added."""
        for module, held in self._held:
            if held or module._buffers:
                _put_back(module, held)
        for buffer, value in self._values:
            if buffer.grad_fn is not None and not buffer._is_view():
                buffer.detach_()  # changed in place by an operation that autograd recorded
            buffer.copy_(value)


def _can_be_written(buffer: Tensor) -> bool:
    """Not lazy buffers (no shape yet), parameters (in the flat vector) or expanded buffers (elements overlap)."""
    if is_lazy(buffer) or isinstance(buffer, nn.Parameter):
        return False
    strided = buffer.layout == torch.strided
    return not strided or all(step or size < 2 for step, size in zip(buffer.stride(), buffer.shape, strict=True))


def _put_back(module: nn.Module, held: dict[str, Tensor | None]) -> None:
    now = dict(module._buffers.items())
    for name in now.keys() - held.keys():
        delattr(module, name)
    for name, buffer in held.items():
        if name not in now or now[name] is not buffer:
            module._buffers[name] = buffer
