"""The hardware a process computes on. Equal bits are promised for one kind of hardware, so every summary names it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

Hardware = dict[str, str | None]
"""device (cpu or cuda), gpu (its name or None), cpu (its kind), and training: how nodes train there, one by one or
together, which decides the last bits as the hardware does."""

COUNT_GPUS = "import torch; print(torch.cuda.device_count())"


def hardware(device: str, training: str | None = None) -> Hardware:
    """The hardware of this process if torch runs on `device` and nodes are trained in this way."""
    import torch

    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return {"device": device, "gpu": gpu, "cpu": cpu_kind(), "training": training}


def merged(parts: Iterable[Hardware]) -> Hardware:
    """The hardware of several processes: each distinct value once."""
    found = list(parts)
    names = {key: sorted({str(part[key]) for part in found if part[key]}) for key in found[0]} if found else {}
    return {key: ", ".join(values) or None for key, values in names.items()}


@cache
def cpu_kind() -> str:
    """The processor's name and the instruction set that torch uses on it."""
    import torch

    return f"{_processor()} ({torch.backends.cpu.get_cpu_capability()})"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def count_gpus() -> int:
    """GPUs that torch sees on this machine, even if hidden from this process; -1 if torch cannot be imported."""
    everything = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, "-c", COUNT_GPUS]
    try:
        counted = subprocess.run(command, env=everything, capture_output=True, text=True, timeout=60)
        return int(counted.stdout) if counted.returncode == 0 else -1
    except (subprocess.TimeoutExpired, ValueError):
        return -1
