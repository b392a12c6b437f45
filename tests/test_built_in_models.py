"""resnet18-gn and char-lstm: their sizes by hand, and whole runs."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core.models import Fit, FlatModel, build_model

SMALL = {"strategy": "fedpns", "rounds": 2, "nodes": 4, "fraction": 0.5, "epochs": 1, "batch_size": 5}


def test_the_size_of_a_resnet():
    """By hand: stem, four stages of two blocks, three projections, and the linear layer; every width twice per norm."""
    widths = [64, 64, 64, 64, 64, 128, 128, 128, 128, 256, 256, 256, 256, 512, 512, 512, 512]
    convolutions = 3 * 64 * 9 + sum(9 * a * b for a, b in pairwise(widths))
    shortcuts = 64 * 128 + 128 * 256 + 256 * 512
    norms = 2 * (sum(widths) + 128 + 256 + 512)
    module = build_model("resnet18-gn", (3, 32, 32), 100, seed=1)
    assert FlatModel(module).weights.numel() == convolutions + shortcuts + norms + 513 * 100 == 11_220_132
    assert {m.num_groups for m in module.modules() if isinstance(m, nn.GroupNorm)} == {32}
    assert not dict(module.named_buffers())


def test_the_size_of_a_char_lstm():
    module = build_model("char-lstm", (80,), 90, seed=1, fit=Fit(tokens=89))
    layers = 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2)
    assert FlatModel(module).weights.numel() == 8 * 90 + layers + 257 * 90
    x = torch.randint(0, 90, (3, 80))
    assert module(x).shape == (3, 90)
    assert torch.equal(module(x)[1:], module(x[1:])) or torch.allclose(module(x)[1:], module(x[1:]))


def test_photographs_of_a_hundred_classes():
    e = Experiment(dataset="tests.small_data:Photographs", samples_per_node=5, **SMALL)
    result = run(e)
    assert e.model == "resnet18-gn" and result.weights.size == 11_220_132
    assert [record.test_loss is not None for record in result.records] == [True, True]
    assert 0 < result.records[0].train_loss < 100


def test_a_char_lstm_learns_a_cyclic_text():
    e = Experiment(dataset="tests.small_data:Texts", samples_per_node=30, lr=1.0, **SMALL)
    result = run(e)
    losses = [record.test_loss for record in result.records]
    assert losses[-1] < losses[0] < np.log(12) + 0.1
    with torch.no_grad():
        assert result.module()(torch.arange(10)[None]).shape == (1, 12)


def test_more_characters_than_classes_are_refused():
    with pytest.raises(InputError, match=r"^dataset: .*Texts cannot be used: train_y holds the label 11"):
        run(Experiment(dataset="tests.small_data:Texts", characters=11, samples_per_node=30, **SMALL))


@pytest.mark.parametrize(("model", "reason"), [("cnn-m", "RuntimeError"), ("resnet18-gn", "RuntimeError")])
def test_a_model_for_images_refuses_texts(model, reason):
    with pytest.raises(InputError, match=rf"^model: {model} cannot be trained on inputs of shape \(10,\) \({reason}"):
        run(Experiment(dataset="tests.small_data:Texts", model=model, samples_per_node=30, **SMALL))


@pytest.mark.parametrize("dataset, model", [("emnist", "cnn-m"), ("femnist", "cnn-m"), ("cifar100", "cnn-c")])
def test_the_papers_networks_have_as_many_outputs_as_there_are_classes(dataset, model):
    shape, classes = {"emnist": ((1, 28, 28), 47), "femnist": ((1, 28, 28), 62), "cifar100": ((3, 32, 32), 100)}[
        dataset
    ]
    module = build_model(model, shape, classes, seed=1)
    assert module(torch.zeros(2, *shape)).shape == (2, classes)
