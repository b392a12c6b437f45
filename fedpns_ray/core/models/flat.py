"""The flat vector that represents any model.

Selection, aggregation and the network see a model as one vector of float32. `FlatModel` stores all parameters of
a module, and all their gradients, in two such vectors: loading weights is one copy, an SGD step is one addition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fedpns_ray.core.models.buffers import Buffers, averaged_buffers
from fedpns_ray.core.models.dropout import Given, Masks
from fedpns_ray.core.tasks import Loss, cohort_cross_entropy, cross_entropy


def memory_layout(module: nn.Module, x: Tensor) -> Tensor:
    """Inputs in the memory order that the module asks for: with channels last, a CPU convolves and pools twice as fast.

    The values stay the same. The strides are given explicitly because torch treats grey images as contiguous anyway.
    """
    if x.ndim != 4 or not getattr(module, "channels_last", False):
        return x
    _, c, h, w = x.shape
    return x.contiguous(memory_format=torch.channels_last).as_strided(x.shape, (c * h * w, 1, c * w, c))


def parameter_shapes(module: nn.Module) -> tuple[tuple[int, ...], ...]:
    """The shapes of the parameters that are trained."""
    return tuple(tuple(p.shape) for p in module.parameters() if p.requires_grad)


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

    @property
    def tensors(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the parameters, in the order of the vector."""
        return parameter_shapes(self.module)

    def load(self, state: Tensor) -> None:
        self.state.copy_(state)
        self._loaded = state[len(self.weights) :].clone()
        self.reset_buffers()

    @torch.no_grad()
    def reset_buffers(self) -> None:
        """Call this before a node trains and before samples are tested, so that no result depends on earlier ones."""
        self._buffers.restore()
        if len(self._loaded):
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

    def weighted_loss(self, x: Tensor, y: Tensor, factors: Tensor) -> Tensor:
        """The mean of the samples' losses, each times its factor. A user's loss is asked about one sample at a time."""
        outputs = self.module(x)
        if self._loss is cross_entropy and y.ndim == 1:
            return (cross_entropy(outputs, y, reduction="none") * factors).mean()
        losses = [self._loss(outputs[k : k + 1], y[k : k + 1]) for k in range(len(y))]
        return (torch.stack(losses) * factors).mean()

    def loss_and_gradient(self, x: Tensor, y: Tensor, factors: Tensor | None = None) -> Tensor:
        """The loss of a batch, in which samples may have factors; its gradient is then in `self.gradient`."""
        self.gradient.zero_()
        loss = self.loss(x, y) if factors is None else self.weighted_loss(x, y, factors)
        loss.backward()
        return loss.detach()

    def pure_outputs(self, weights: Tensor, own: dict[str, Tensor], x: Tensor) -> Tensor:
        """The module's outputs with these weights and buffers, for torch.func; `own` then holds new buffers."""
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        pieces = weights.split([p.numel() for _, p in named])
        state = {name: piece.view(p.shape) for (name, p), piece in zip(named, pieces, strict=True)} | own
        outputs = torch.func.functional_call(self.module, state, (x,))
        own.update((name, state[name]) for name in own)  # functional_call has put the new values there
        return outputs

    def pure_gradients(self, dropout: Iterator[Masks] | None = None) -> Gradients:
        """`cohort_gradients` for any module, by torch.func: fast on a GPU, but not the same bits at every size.

        Call this once per cohort: each node has its own buffers, which start as the module's and are kept from one
        step to the next. `dropout` holds the masks of every step; a module that draws anything else is refused, as
        that would depend on the cohort.
        """
        given = dropout or repeat(())
        self.reset_buffers()
        initial = dict(self.module.named_buffers())
        own: dict[str, Tensor] = {}

        def loss(
            weights: Tensor, own: dict[str, Tensor], x: Tensor, y: Tensor, masks: Masks
        ) -> tuple[Tensor, dict[str, Tensor]]:
            with Given(masks) if masks else nullcontext():
                outputs = self.pure_outputs(weights, own, x)
            value = (cohort_cross_entropy if self._loss is cross_entropy else self._loss)(outputs, y)
            return value, {name: buffer.detach() for name, buffer in own.items()}

        steps = torch.func.vmap(torch.func.grad_and_value(loss, has_aux=True), randomness="error")

        def gradients(weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal own
            own = own or {name: b.expand(len(weights), *b.shape).clone() for name, b in initial.items()}
            found, (losses, own) = steps(weights, own, x, y, next(given))
            return found, losses

        return gradients


def own_randomness(device: torch.device) -> AbstractContextManager[None]:
    """Random draws inside this context leave the caller's generators as they were."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
