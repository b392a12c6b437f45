"""What "the same bits" means on a GPU: the same kind of GPU, driver and libraries, and nothing left to chance."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedpns_ray.errors import InputError, Shown

WORKSPACE = ":4096:8"
"""Workspaces with which cuBLAS gives the same bits in every call; read when cuBLAS is first used in a process. Others
may give other bits, so no machine's own setting is left in place."""


def settle(device: torch.device, fast_math: bool) -> None:
    """Before anything is computed on a GPU: full float32 and deterministic algorithms, unless `fast_math`.

    Without this, convolutions use TF32, with 10 bits of mantissa, and cuDNN may choose other algorithms in every run.
    These are settings of the whole process, which trains one experiment after another on its device. On a CPU there is
    nothing to settle.
    """
    if device.type != "cuda":
        return
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = WORKSPACE  # also for what the process trains later
    torch.backends.cuda.matmul.allow_tf32 = fast_math
    torch.backends.cudnn.allow_tf32 = fast_math
    torch.backends.cudnn.benchmark = fast_math
    torch.backends.cudnn.deterministic = not fast_math
    torch.use_deterministic_algorithms(not fast_math)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


@contextmanager
def naming_the_remedy() -> Iterator[None]:
    """Torch refuses an operation that has no deterministic algorithm; the user hears what to do."""
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        problem = f"the model uses {str(error).split()[0]}, for which torch has no deterministic algorithm on CUDA"
        hint = "use another layer, or set fast_math"
        if "CUBLAS_WORKSPACE_CONFIG" in str(error):
            problem = "this process has used cuBLAS before, with workspaces that are not deterministic"
            hint = f"set CUBLAS_WORKSPACE_CONFIG={WORKSPACE} before Python starts, or set fast_math"
        raise InputError("fast_math", Shown("off"), hint=hint, problem=problem) from error
