"""`python -m fedpns_ray.doctor.cuda`: whether torch computes on a GPU here, before Ray counts it.

The cluster files run this on every GPU worker before Ray is started. A worker whose driver or build of torch does not
fit would otherwise join with a GPU that Ray counts and torch cannot use, and every trial sent to it would fail. Torch
loads cuBLAS and cuDNN when they are first needed, and an image may have others in its way: so both are needed here.
"""

from __future__ import annotations

import sys

from fedpns_ray.errors import one_line


def compute(device: str) -> None:
    """A step of a small network on a device: a convolution, a product, and their gradients."""
    import torch

    x, kernels = torch.ones(2, 1, 8, 8, device=device), torch.ones(4, 1, 3, 3, device=device, requires_grad=True)
    weights = torch.ones(10, 144, device=device, requires_grad=True)
    outputs = torch.nn.functional.conv2d(x, kernels).flatten(1) @ weights.T
    outputs.sum().backward()
    if outputs[1, 9].item() != 9 * 144:
        raise ArithmeticError(f"{9 * 144} was expected, and {outputs[1, 9].item()} computed")


def trouble() -> str:
    """Why torch cannot compute on a GPU of this machine; empty if it can."""
    try:
        import torch
    except Exception as error:  # a broken CUDA library may fail in any way
        return f"torch cannot be imported ({one_line(error)}): install requirements.txt"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA: install the CUDA build of the same version"
    build = f"torch {torch.__version__} (CUDA {torch.version.cuda})"
    if not torch.cuda.is_available():
        return f"{build} finds no GPU: no GPU is attached, or its driver is older than this CUDA (see nvidia-smi)"
    try:
        compute("cuda")
    except Exception as error:
        return f"{build} cannot compute on {torch.cuda.get_device_name()} ({one_line(error)})"
    return ""


if __name__ == "__main__":
    if found := trouble():
        sys.exit(f"fedpns: this machine does not join the cluster: {found}")
