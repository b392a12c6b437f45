"""Which code produced a result: the digest of the package's sources and, in a checkout, the commit."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fedpns_ray import __version__

PACKAGE = Path(__file__).parent.parent
PATIENCE = 5.0
"""Seconds within which git must answer."""


@cache
def code() -> dict[str, str | None]:
    """`sources_sha256` is the same wherever the same sources are installed; `commit` is None outside a checkout."""
    return {"commit": _commit(), "sources_sha256": _digest()}


@cache
def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "fedpns-ray": __version__,  # of this code: in a job's folder it runs without being installed
        **{name: version(name) for name in ("ray", "torch", "torchvision", "numpy")},
    }


def made_with(hardware: Mapping[str, str | None]) -> dict[str, str | None]:
    """Everything that may change the bits of a run."""
    return {**versions(), "code": code()["sources_sha256"], **hardware}


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _commit() -> str | None:
    """The commit, with `-modified` appended if the package differs from it; None outside a checkout."""
    if not (PACKAGE.parent / ".git").exists():
        return None
    try:
        commit = _git("rev-parse", "HEAD")
        return f"{commit}-modified" if _git("status", "--porcelain", "--", str(PACKAGE)) else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    command = ["git", "-C", str(PACKAGE.parent), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout.strip()
