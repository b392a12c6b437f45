"""What this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from fedpns_ray.data.sources import IMAGES, data_root

TESTED = {"ray": "2.60.0", "torch": "2.13.0", "torchvision": "0.28.0"}


class Finding(NamedTuple):
    ok: bool | None
    """None: good to know, nothing to mend."""
    what: str
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    return [*_python(), *_packages(), _machine(), _gpus(), _torchvision(), *_data()]


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
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    free = shutil.disk_usage(".").free / 2**30
    return Finding(None, "machine", f"{os.cpu_count()} cores, {memory:.0f} GiB memory, {free:.0f} GiB disk free")


def _gpus() -> Finding:
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count()))
        return Finding(True, "GPUs", names)
    if shutil.which("nvidia-smi"):
        return Finding(False, "GPUs", "a driver, but torch sees none", "install a CUDA build of torch")
    return Finding(None, "GPUs", "none: everything runs on the CPU")


def _torchvision() -> Finding:
    from fedpns_ray.data import torchvision_import

    try:
        torchvision_import.torchvision_datasets()
    except Exception as error:  # whatever it is, it is what the user must know
        return Finding(False, "torchvision", f"cannot be imported: {error}", "install the build that matches torch")
    if torchvision_import.mended():
        return Finding(
            None, "torchvision", "a build for another torch", "fine for data sets, which is all we use it for"
        )
    return Finding(True, "torchvision", "matches torch")


def _data() -> list[Finding]:
    root = data_root()
    there = [name for name in IMAGES if (root / f"{name}.npz").exists()]
    missing = [name for name in IMAGES if name not in there]
    parent = next(folder for folder in (root, *root.parents) if folder.exists())
    writable = os.access(parent, os.W_OK)
    return [
        Finding(writable, "data folder", str(root), "" if writable else "not writable: set FEDPNS_DATA to one that is"),
        Finding(
            None,
            "data sets",
            ", ".join(["synthetic", *there]),
            f"fedpns data fetch {' '.join(missing)}" if missing else "",
        ),
    ]
