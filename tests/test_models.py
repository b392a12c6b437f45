"""The models of Section V, models of one's own, and the flat vector."""

import numpy as np
import pytest
import torch
from torch import nn

from fedpns_ray import Experiment, InputError
from fedpns_ray.core.models import FlatModel, build_model


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [("mlr", (60,), 610), ("mlr", (1, 28, 28), 7850), ("cnn-m", (1, 28, 28), 21840), ("cnn-c", (3, 32, 32), 62006),
     ("resnet18-gn", (3, 32, 32), 11_173_962)],
)  # fmt: skip
def test_sizes(name, shape, parameters):
    flat = FlatModel(build_model(name, shape, 10, seed=1))
    assert flat.weights.numel() == parameters == flat.gradient.numel()
    assert flat.module(torch.zeros(3, *shape)).shape == (3, 10)


def test_initial_weights_hang_on_the_seed_alone():
    def weights(seed):
        return FlatModel(build_model("cnn-m", (1, 28, 28), 10, seed)).weights

    before = torch.get_rng_state()
    assert torch.equal(weights(1), weights(1)) and not torch.equal(weights(1), weights(2))
    assert torch.equal(before, torch.get_rng_state())  # the caller's generator is left alone


def test_flat_vector_is_the_model():
    torch.manual_seed(0)
    flat = FlatModel(build_model("cnn-c", (3, 32, 32), 10, seed=1))
    x, y = torch.randn(4, 3, 32, 32), torch.tensor([1, 2, 3, 4])
    flat.loss_and_gradient(x, y)
    autograd = torch.cat([p.grad.flatten() for p in flat.module.parameters()])
    assert torch.equal(autograd, flat.gradient) and flat.gradient.abs().sum() > 0
    first = flat.loss(x, y)
    flat.weights.add_(flat.gradient, alpha=-0.1)  # an SGD step
    assert flat.loss(x, y) < first


def test_closed_form_gradients_of_mlr_are_those_of_autograd():
    torch.manual_seed(0)
    module = build_model("mlr", (1, 7, 7), 10, seed=1)
    flat = FlatModel(module)
    weights = torch.randn(6, 500)
    x, y = torch.randn(6, 20, 1, 7, 7), torch.randint(0, 10, (6, 20))
    gradients, losses = module.cohort_gradients(weights, x, y)
    by_func, losses_by_func = flat.pure_gradients()(weights, x, y)
    torch.testing.assert_close(gradients, by_func)
    torch.testing.assert_close(losses, losses_by_func)
    for k in range(6):
        flat.load(weights[k])
        loss = flat.loss_and_gradient(x[k], y[k])
        torch.testing.assert_close(gradients[k], flat.gradient)
        torch.testing.assert_close(losses[k], loss)


def test_a_model_of_your_own():
    module = build_model(f"{__name__}:Own", (1, 28, 28), 10, seed=1)
    assert isinstance(module, Own) and module.shape == (1, 28, 28)
    assert Experiment(model=f"{__name__}:Own").model.endswith("Own")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{__name__}:WithBatchNorm", "has batch normalisation"),
        (f"{__name__}:ThreeOutputs", r"has outputs of shape \(3,\); it must be \(10,\)"),
        (f"{__name__}:not_a_module", "returned an object of type int; it must return a torch.nn.Module"),
        ("no.such:Net", "cannot be imported"),
        (f"{__name__}:raises_nothing_in_particular", r"cannot be trained on inputs of shape \(1, 28, 28\) \(KeyError:"),
        (f"{__name__}:Constant", "has no parameters to train"),
        ("cnn-c", r"cannot be trained on inputs of shape \(1, 28, 28\)"),
    ],
)
def test_unfit_models_are_refused_in_one_line(name, message):
    with pytest.raises(InputError, match=message) as caught:
        build_model(name, (1, 28, 28), 10, seed=1)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("model: ")


class Own(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.shape = shape
        self.out = nn.Linear(int(np.prod(shape)), classes)

    def forward(self, x):
        return self.out(x.flatten(1))


class WithBatchNorm(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 10))


class ThreeOutputs(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 3))


class ViewNet(nn.Module):
    """`view`, as many tutorials write it, needs ordinary memory order; and it starts in double precision."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5)
        self.out = nn.Linear(4 * 12 * 12, 10)
        self.double()

    def forward(self, x):
        return self.out(torch.max_pool2d(self.conv(x), 2).view(-1, 4 * 12 * 12))


def test_a_model_that_views_its_inputs_can_be_trained(mnist):
    from fedpns_ray import run

    e = Experiment(
        dataset="mnist", model=f"{__name__}:ViewNet", strategy="fedavg", rounds=1, nodes=5, samples_per_node=20
    )
    assert run(e).summary["rounds"] == 1


class Constant(nn.Module):
    def forward(self, x):
        return torch.zeros(len(x), 10)


def raises_nothing_in_particular():
    raise KeyError


def not_a_module():
    return 7
