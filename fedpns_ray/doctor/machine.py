"""Checks this machine: what it has, what is missing, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import psutil

from fedpns_ray.data.sources import data_root
from fedpns_ray.errors import one_line
from fedpns_ray.experiment import Experiment
from fedpns_ray.registry import official_datasets
from fedpns_ray.runtime.memory import free as unused
from fedpns_ray.runtime.memory import needed

TESTED = {"ray": "2.60.0", "torch": "2.13.0", "torchvision": "0.28.0"}


class Finding(NamedTuple):
    ok: bool | None
    """None: for information, nothing to fix."""
    what: str
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    return [*_python(), *_packages(), _machine(), _memory(), _gpus(), _torchvision(), *_data()]


def _python() -> list[Finding]:
    fine = sys.version_info >= (3, 10)
    return [Finding(fine, "Python", platform.python_version(), "" if fine else "install Python 3.10 or newer")]


def _packages() -> list[Finding]:
    findings = []
    for name, tested in TESTED.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            findings.append(Finding(False, name, "missing", f"pip install {name}=={tested}"))
            continue
        same = found.split("+")[0] == tested
        advice = "" if same else f"tested with {tested}; bits may differ: pip install {name}=={tested}"
        findings.append(Finding(True if same else None, name, found, advice))
    return findings


def _machine() -> Finding:
    memory = psutil.virtual_memory().total / 2**30
    free = shutil.disk_usage(".").free / 2**30
    there = f"{memory:.0f} GiB memory ({unused() / 2**30:.1f} free)"
    return Finding(None, "machine", f"{os.cpu_count()} cores, {there}, {free:.0f} GiB disk free")


def _memory() -> Finding:
    """What a run of the default size needs, and the largest population of its kind that fits."""
    small = Experiment()
    need, many = needed(small), (needed(small.but(nodes=nodes)).total for nodes in (3000, 2000))
    bytes_per_node = (next(many) - next(many)) / 1000
    most = max(0.0, (unused() - need.processes) / bytes_per_node)
    size = f"{small.nodes} nodes of {small.samples_per_node} samples"
    found = f"the default run needs {need.total / 2**30:.1f} GiB ({size}); {most:,.0f} such nodes fit"
    enough = need.total < unused()
    return Finding(enough, "memory", found, "" if enough else "end other programs")


def _gpus() -> Finding:
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count()))
        return Finding(True, "GPUs", names)
    if shutil.which("nvidia-smi"):
        return Finding(False, "GPUs", "a driver is installed, but torch sees no GPU", "install a CUDA build of torch")
    return Finding(None, "GPUs", "none: everything runs on the CPU")


def _torchvision() -> Finding:
    from fedpns_ray.data import torchvision_import

    try:
        torchvision_import.torchvision_datasets()
    except Exception as error:  # any error counts: the user needs to know it
        return Finding(
            False, "torchvision", f"cannot be imported: {one_line(error)}", "install the build that matches torch"
        )
    if torchvision_import.mended():
        return Finding(None, "torchvision", "built for another torch", "works: only its data sets are used")
    return Finding(True, "torchvision", "matches torch")


def _data() -> list[Finding]:
    root = data_root()
    parent = next(folder for folder in (root, *root.parents) if folder.exists())
    writable = os.access(parent, os.W_OK)
    return [
        Finding(
            writable, "data folder", str(root), "" if writable else "not writable: set FEDPNS_DATA to a folder that is"
        ),
        Finding(None, "data sets", *data_sets(root, "fedpns data fetch {}")),
    ]


def data_sets(root: Path, advice: str) -> tuple[str, str]:
    """What is there of every data set, and the advice, filled in with the names of those that are not."""
    standing = {name: dataset.standing(root) for name, dataset in official_datasets().items()}
    there = [name if words == "ready" else f"{name} ({words})" for name, words in standing.items() if words]
    missing = [name for name, words in standing.items() if not words]
    return ", ".join(["synthetic", *there]), advice.format(" ".join(missing)) if missing else ""
