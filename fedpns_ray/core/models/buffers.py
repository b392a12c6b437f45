"""Buffers: what a module keeps beside its parameters, and what becomes of it under each policy.

refuse: a model with batch normalisation is refused, since its running statistics would be lost; other buffers are
reset for every node.
local: all buffers are reset for every node and none is sent. In tests, batch normalisation uses the statistics of
what is tested together: its running statistics have never seen data.
average: floating-point buffers that belong to the state of the module are sent and averaged as parameters are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy


class Buffers:
    """A module's buffers (running statistics, counters, masks) as they are now, to be put back later.

    If they were kept, they would carry what one node has seen to the next node of the same process, and results would
    depend on the layout.
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


def averaged_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that are averaged, each once: floating-point ones that `state_dict` holds, not counters or caches."""
    state = module.state_dict()
    return {
        name: buffer
        for name, buffer in module.named_buffers()
        if name in state and buffer.is_floating_point() and _can_be_written(buffer) and buffer.layout == torch.strided
    }


def has_batch_norm(module: nn.Module, tracking: bool = False) -> bool:
    """Whether a module has batch normalisation; `tracking`: with running statistics."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm)]
    return any(m.track_running_stats or not tracking for m in norms)


def for_testing(module: nn.Module, policy: str) -> nn.Module:
    """The module in the mode in which it is tested under a policy."""
    module.eval()
    if policy == "local":
        for part in module.modules():
            if isinstance(part, _BatchNorm):
                part.train()
    return module


def _put_back(module: nn.Module, held: dict[str, Tensor | None]) -> None:
    now = dict(module._buffers.items())
    for name in now.keys() - held.keys():
        delattr(module, name)
    for name, buffer in held.items():
        if name not in now or now[name] is not buffer:
            module._buffers[name] = buffer
