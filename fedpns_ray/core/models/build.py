"""Models by name or import path, built with the initial weights of a seed, and refused if they cannot be trained."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from fedpns_ray.core.models.buffers import Buffers, averaged_buffers, has_batch_norm
from fedpns_ray.core.models.char_lstm import CharLSTM
from fedpns_ray.core.models.cnn import CNNC, CNNM
from fedpns_ray.core.models.dropout import NodeDropout
from fedpns_ray.core.models.flat import FlatModel, memory_layout, own_randomness
from fedpns_ray.core.models.mlr import MLR
from fedpns_ray.core.models.resnet import ResNet18GN
from fedpns_ray.core.streams import torch_seed
from fedpns_ray.core.tasks import CLASSIFICATION, Task, find_task
from fedpns_ray.core.user_code import import_path
from fedpns_ray.errors import InputError, Shown, one_line

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment

BUILT_IN = {"mlr": MLR, "cnn-m": CNNM, "cnn-c": CNNC, "resnet18-gn": ResNet18GN, "char-lstm": CharLSTM}


class Described(Protocol):
    """What a model must know about data: those that are loaded, or the outline of those that are not."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def classes(self) -> int: ...

    @property
    def tokens(self) -> int | None: ...

    @property
    def task(self) -> str: ...

    @property
    def targets(self) -> tuple[int, ...]: ...


class Fit(NamedTuple):
    """What a model must fit beside the shape of its inputs and the number of classes."""

    tokens: int | None = None
    """The highest of the whole numbers that are its inputs; None where inputs are float32."""
    task: Task = CLASSIFICATION
    targets: tuple[int, ...] = ()
    """The shape of one target; empty for a single label or number."""
    buffers: str = "refuse"

    @classmethod
    def to(cls, data: Described, experiment: Experiment) -> Fit:
        return cls(data.tokens, find_task(data.task, experiment.loss), data.targets, experiment.buffers)

    def inputs(self, *shape: int) -> Tensor:
        """Inputs to try a model with."""
        return torch.zeros(shape) if self.tokens is None else torch.full(shape, self.tokens)

    def zeros(self, *samples: int) -> Tensor:
        """Targets to try a loss with."""
        return torch.zeros(*samples, *self.targets, dtype=torch.int64 if self.task.labels else torch.float32)


LABELS = Fit()


def model_for(experiment: Experiment, data: Described) -> nn.Module:
    """The model of an experiment on these data."""
    return build_model(experiment.model, data.shape, data.classes, experiment.seed, Fit.to(data, experiment))


def flat_model_for(experiment: Experiment, data: Described, device: torch.device | str = "cpu") -> FlatModel:
    """The same as a flat vector, with the loss of the task."""
    loss = find_task(data.task, experiment.loss).loss
    return FlatModel(model_for(experiment, data), device, loss, experiment.buffers == "average")


def numbers_sent(module: nn.Module, buffers: str) -> int:
    """The length of the vector that a node sends."""
    sent = [p for p in module.parameters() if p.requires_grad]
    return sum(p.numel() for p in (*sent, *(averaged_buffers(module).values() if buffers == "average" else ())))


def last_layer(module: nn.Module) -> tuple[int, int] | None:
    """Outputs and inputs of the linear layer whose weights and biases come last; None if there is none."""
    *_, weights, biases = [None, None, *(p for p in module.parameters() if p.requires_grad)]
    if weights is None or biases is None or weights.ndim != 2 or tuple(biases.shape) != (len(weights),):
        return None
    return len(weights), weights.shape[1]


def build_model(name: str, shape: tuple[int, ...], classes: int, seed: int, fit: Fit = LABELS) -> nn.Module:
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
            _refuse_unfit(name, module, shape, classes, fit)
    except InputError:
        raise
    except Exception as error:  # the factory is the user's: whatever it raises is for them to see
        problem = f"cannot be trained on inputs of shape {shape} ({_reason(error)})"
        raise InputError("model", Shown(name), problem=problem) from None
    return module


def _refuse_unfit(name: str, module: Any, shape: tuple[int, ...], classes: int, fit: Fit) -> None:
    model = Shown(name)
    if not isinstance(module, nn.Module):
        problem = f"returned an object of type {type(module).__name__}"
        raise InputError("model", model, "it must return a torch.nn.Module", problem=problem)
    if fit.buffers == "refuse" and has_batch_norm(module, tracking=True):
        problem = "has batch normalisation, whose running statistics are not parameters"
        hint = "set buffers to average or local, or use nn.GroupNorm"
        raise InputError("model", model, hint=hint, problem=problem)
    if not any(p.requires_grad for p in module.parameters()):
        raise InputError("model", model, problem="has no parameters to train")
    buffers = Buffers(module.float())
    outputs = module(memory_layout(module, fit.inputs(2, *shape)))
    wanted = fit.task.outputs(fit.targets, classes)
    if tuple(outputs.shape) != (2, *wanted):
        problem = f"has outputs of shape {tuple(outputs.shape)[1:]}"
        raise InputError("model", model, f"it must be {wanted}", problem=problem)
    _refuse_unfit_loss(outputs, fit)
    outputs.sum().backward()
    module.zero_grad()
    buffers.restore()


def _refuse_unfit_loss(outputs: Tensor, fit: Fit) -> None:
    """A loss of the user's that is not one number with a gradient, or a regression with too few outputs."""
    if (own := fit.task.own_loss) is None:
        numbers = math.prod(fit.targets)
        if not fit.task.labels and outputs[0].numel() != numbers:
            raise InputError("classes", outputs[0].numel(), f"every target of the regression has {numbers} numbers")
        return
    name = Shown(getattr(own, "__name__", type(own).__name__))
    try:
        found = own(outputs, fit.zeros(2))
    except Exception as error:  # the loss is the user's: whatever it raises is for them to see
        raise InputError("loss", name, problem=f"cannot be computed ({_reason(error)})") from None
    if not isinstance(found, Tensor) or found.ndim or not found.requires_grad:
        shape = f"of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"of type {type(found).__name__}"
        allowed = "it must be a tensor with one number, the mean loss, that has a gradient"
        raise InputError("loss", name, allowed, problem=f"returned an object {shape}")


def refuse_unvectorisable(name: str, model: FlatModel, shape: tuple[int, ...], fit: Fit = LABELS) -> None:
    """Refuse `vectorize: on` for a module that torch.func cannot handle: two steps of two nodes are tried."""
    device = model.weights.device
    if fit.buffers == "average":
        raise InputError("vectorize", Shown("on"), "with buffers average nodes are trained one by one")
    x, y = fit.inputs(2, 2, *shape).to(device), fit.zeros(2, 2).to(device)
    weights = model.weights.repeat(2, 1)
    model.module.train()
    try:
        with torch.no_grad(), own_randomness(device):
            dropout = NodeDropout(model, lambda size: fit.inputs(size, *shape).to(device))
            gradients = model.pure_gradients(dropout.masks([0, 1], [2, 2]))
            for _ in range(2):
                gradients(weights, x, y)
    except Exception as error:  # the module is the user's, and torch raises many kinds of errors
        problem = f"is not allowed for model {name} ({_reason(error)})"
        raise InputError("vectorize", Shown("on"), problem=problem) from None


def _reason(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}")
