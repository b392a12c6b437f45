"""The models of Section V, and the flat vector that represents any model.

Selection, aggregation and the network see a model as one vector of float32. `FlatModel` stores all parameters of
a module, and all their gradients, in two such vectors: loading weights is one copy, an SGD step is one addition.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedpns_ray.core.streams import torch_seed
from fedpns_ray.core.user_code import import_path
from fedpns_ray.errors import InputError, Shown, one_line


class MLR(nn.Module):
    """Multinomial logistic regression: one linear layer."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(int(np.prod(shape)), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))

    def cohort_gradients(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients and losses of many nodes at once, in closed form: (softmax(Wx + b) - onehot(y)) x^T / B.

        Row k of `weights` is node k's flat vector. The bits of a node do not depend on the other rows, and this is
        several times faster than autograd under vmap (`make bench`).
        """
        (m, b), c = y.shape, self.linear.out_features
        x = x.flatten(2)
        w, bias = weights[:, :-c].view(m, c, -1), weights[:, -c:]
        log_p = torch.baddbmm(bias.unsqueeze(1), x, w.transpose(1, 2)).log_softmax(-1)
        own = y.unsqueeze(-1)
        losses = log_p.gather(-1, own).sum(dim=(1, 2)).div_(-b)
        error = log_p.exp_().scatter_add_(-1, own, log_p.new_tensor(-1.0).expand(m, b, 1)).div_(b)
        gradients = torch.cat([torch.bmm(error.transpose(1, 2), x).view(m, -1), error.sum(1)], dim=1)
        return gradients, losses


class CNNM(nn.Module):
    """CNN-M, for 28 x 28 grey images: 21,840 parameters. Dropout also on the hidden units, as in the released code."""

    channels_last = True
    """Inputs come in the memory layout that is fastest for convolutions; `flatten` accepts it, `view` does not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.dropout2d = nn.Dropout2d(0.5)
        self.dropout = nn.Dropout(0.5)
        self.hidden = nn.Linear(320, 50)
        self.out = nn.Linear(50, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.dropout2d(self.conv2(x)), 2))
        x = self.dropout(F.relu(self.hidden(x.flatten(1))))
        return self.out(x)


class CNNC(nn.Module):
    """CNN-C, for 32 x 32 colour images: 62,006 parameters."""

    channels_last = True

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, kernel_size=5)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.hidden1 = nn.Linear(400, 120)
        self.hidden2 = nn.Linear(120, 84)
        self.out = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.out(F.relu(self.hidden2(F.relu(self.hidden1(x.flatten(1))))))


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


class FlatModel:
    """A module whose parameters, and gradients, are views of one flat vector each; a load also resets its buffers."""

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device)
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.weights = torch.cat([p.detach().reshape(-1) for p in parameters]).to(torch.float32)
        self.gradient = torch.zeros_like(self.weights)
        start = 0
        for p in parameters:
            end = start + p.numel()
            p.data = self.weights[start:end].view_as(p)
            p.grad = self.gradient[start:end].view_as(p)
            start = end
        self._buffers = Buffers(self.module)

    def load(self, weights: Tensor) -> None:
        self.weights.copy_(weights)
        self.reset_buffers()

    def reset_buffers(self) -> None:
        """Call this before a node trains and before samples are tested, so that no result depends on earlier ones."""
        self._buffers.restore()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.module(x), y)

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
            value = F.cross_entropy(torch.func.functional_call(self.module, state, (x,)), y)
            return value, {name: state[name].detach() for name in own}  # functional_call has put the new values there

        steps = torch.func.vmap(torch.func.grad_and_value(loss, has_aux=True), randomness="different")

        def gradients(weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal own
            own = own or {name: b.expand(len(weights), *b.shape).clone() for name, b in initial.items()}
            found, (losses, own) = steps(weights, own, x, y)
            return found, losses

        return gradients


BUILT_IN = {"mlr": MLR, "cnn-m": CNNM, "cnn-c": CNNC}


def build_model(name: str, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """The module that a name or import path names, with the initial weights of this seed.

    A user-defined factory may take `shape` and `classes`, or nothing.
    """
    factory: Any = BUILT_IN.get(name) or import_path(name, "model")
    wanted = {"shape": shape, "classes": classes}
    try:
        taken = set(inspect.signature(factory).parameters)
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed, "initial weights"))
            module = factory(**{key: value for key, value in wanted.items() if key in taken})
            _refuse_unfit(name, module, shape, classes)
    except InputError:
        raise
    except Exception as error:  # the factory is the user's: whatever it raises is for them to see
        problem = f"cannot be trained on inputs of shape {shape} ({_reason(error)})"
        raise InputError("model", Shown(name), problem=problem) from None
    return module


def _refuse_unfit(name: str, module: Any, shape: tuple[int, ...], classes: int) -> None:
    model = Shown(name)
    if not isinstance(module, nn.Module):
        problem = f"returned an object of type {type(module).__name__}"
        raise InputError("model", model, "it must return a torch.nn.Module", problem=problem)
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats for m in module.modules()):
        problem = "has batch normalisation, whose running statistics are not parameters"
        raise InputError("model", model, hint="use nn.GroupNorm, or track_running_stats=False", problem=problem)
    if not any(p.requires_grad for p in module.parameters()):
        raise InputError("model", model, problem="has no parameters to train")
    buffers = Buffers(module.float())
    outputs = module(memory_layout(module, torch.zeros(2, *shape)))
    if tuple(outputs.shape) != (2, classes):
        problem = f"has outputs of shape {tuple(outputs.shape)[1:]}"
        raise InputError("model", model, f"it must be ({classes},)", problem=problem)
    outputs.sum().backward()
    module.zero_grad()
    buffers.restore()


def refuse_unvectorisable(name: str, model: FlatModel, shape: tuple[int, ...]) -> None:
    """Refuse `vectorize: on` for a module that torch.func cannot handle: two steps of two nodes are tried."""
    device = model.weights.device
    x, y = torch.zeros(2, 2, *shape, device=device), torch.zeros(2, 2, dtype=torch.int64, device=device)
    weights = model.weights.repeat(2, 1)
    model.module.train()
    try:
        with torch.no_grad(), own_randomness(device):
            gradients = model.pure_gradients()
            for _ in range(2):
                gradients(weights, x, y)
    except Exception as error:  # the module is the user's, and torch raises many kinds of errors
        problem = f"is not allowed for model {name} ({_reason(error)})"
        raise InputError("vectorize", Shown("on"), problem=problem) from None


def _reason(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}")


def own_randomness(device: torch.device) -> AbstractContextManager[None]:
    """Random draws inside this context leave the caller's generators as they were."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
