"""The flat vector that represents any model.

Selection, aggregation and the network see a model as one vector of float32. `FlatModel` stores all parameters of
a module, and all their gradients, in two such vectors: loading weights is one copy, an SGD step is one addition.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fedpns_ray.core.models.buffers import Buffers, averaged_buffers
from fedpns_ray.core.tasks import Loss, cross_entropy


def memory_layout(module: nn.Module, x: Tensor) -> Tensor:
    """Inputs in the memory order that the module asks for: with channels last, a CPU convolves and pools twice as fast.

    The values stay the same. The strides are given explicitly because torch treats grey images as contiguous anyway.
    """
    if x.ndim != 4 or not getattr(module, "channels_last", False):
        return x
    _, c, h, w = x.shape
    return x.contiguous(memory_format=torch.channels_last).as_strided(x.shape, (c * h * w, 1, c * w, c))


@runtime_checkable
class CohortModel(Protocol):
    """A module that computes the gradients of many nodes at once, with the same bits at every cohort size."""

    def cohort_gradients(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]: ...


Gradients = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(weights, x, y) of many nodes, one row per node → their gradients and losses."""


class FlatModel:
    """A module whose parameters, and gradients, are views of one flat vector each; a load also resets its buffers.

    If buffers are averaged, they follow the parameters in the vector that is sent.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str = "cpu",
        loss: Loss = cross_entropy,
        average_buffers: bool = False,
    ) -> None:
        self.module, self._loss = module.to(device), loss
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        averaged = averaged_buffers(self.module) if average_buffers else {}
        self.state = torch.cat([p.detach().reshape(-1) for p in (*parameters, *averaged.values())]).to(torch.float32)
        """What is loaded and sent: the weights and the averaged buffers."""
        self.weights = self.state[: sum(p.numel() for p in parameters)]
        self.gradient = torch.zeros_like(self.weights)
        pieces = iter(self.state.split([p.numel() for p in (*parameters, *averaged.values())]))
        for p, gradient in zip(parameters, self.gradient.split([p.numel() for p in parameters]), strict=True):
            p.data, p.grad = next(pieces).view_as(p), gradient.view_as(p)
        self._averaged = {name: next(pieces).view_as(buffer).data for name, buffer in averaged.items()}
        for one in self.module.modules():  # a buffer may be shared by several modules
            for name, buffer in one._buffers.items():
                own = next((self._averaged[key] for key, known in averaged.items() if known is buffer), None)
                one._buffers[name] = buffer if own is None else own
        self._buffers = Buffers(self.module)
        self._loaded = self.state[len(self.weights) :].clone()

    def load(self, state: Tensor) -> None:
        self.state.copy_(state)
        self._loaded = state[len(self.weights) :].clone()
        self.reset_buffers()

    @torch.no_grad()
    def reset_buffers(self) -> None:
        """Call this before a node trains and before samples are tested, so that no result depends on earlier ones."""
        self._buffers.restore()
        self.state[len(self.weights) :].copy_(self._loaded)

    @torch.no_grad()
    def trained(self) -> Tensor:
        """What a node sends; a buffer that the module has replaced is brought in."""
        now = dict(self.module.named_buffers())
        for name, own in self._averaged.items():
            if name in now and now[name] is not own and now[name].shape == own.shape:
                own.copy_(now[name])
        return self.state

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self._loss(self.module(x), y)

    def loss_and_gradient(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch; its gradient is then in `self.gradient`."""
        self.gradient.zero_()
        loss = self.loss(x, y)
        loss.backward()
        return loss.detach()

    def pure_gradients(self) -> Gradients:
        """`cohort_gradients` for any module, by torch.func: fast on a GPU, but not the same bits at every size.

        Call this once per cohort: each node has its own buffers, which start as the module's and are kept from one
        step to the next.
        """
        self.reset_buffers()
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        initial = dict(self.module.named_buffers())
        own: dict[str, Tensor] = {}

        def loss(weights: Tensor, own: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            pieces = weights.split([p.numel() for _, p in named])
            state = {name: piece.view(p.shape) for (name, p), piece in zip(named, pieces, strict=True)} | own
            value = self._loss(torch.func.functional_call(self.module, state, (x,)), y)
            return value, {name: state[name].detach() for name in own}  # functional_call has put the new values there

        steps = torch.func.vmap(torch.func.grad_and_value(loss, has_aux=True), randomness="different")

        def gradients(weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal own
            own = own or {name: b.expand(len(weights), *b.shape).clone() for name, b in initial.items()}
            found, (losses, own) = steps(weights, own, x, y)
            return found, losses

        return gradients


def own_randomness(device: torch.device) -> AbstractContextManager[None]:
    """Random draws inside this context leave the caller's generators as they were."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
