"""`python -m fedpns_ray.doctor.cuda`, by what can be seen of it without a GPU."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedpns_ray.doctor import cuda


class Seen(TorchDispatchMode):
    """The names of the operators."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_it_needs_what_training_needs():
    """cuBLAS and cuDNN are loaded when they are first used: a sum alone would let a machine join that lacks them."""
    with Seen() as seen:
        cuda.compute("cpu")
    assert {"aten::convolution", "aten::convolution_backward", "aten::mm"} <= seen.names


def test_a_wrong_number_is_no_computation(monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "conv2d", lambda x, kernels: torch.zeros(2, 4, 6, 6, requires_grad=True))
    with pytest.raises(ArithmeticError, match=r"1296 was expected, and 0.0 computed"):
        cuda.compute("cpu")
