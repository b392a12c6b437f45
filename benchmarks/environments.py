"""The environments of other engines: made once, below .bench, with the torch that this project pins."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.harness import Unavailable
from benchmarks.same_bits.checkout import ROOT
from benchmarks.same_bits.processes import Progress, awaited, environment, tail

KEPT = ROOT / ".bench"
INSTALLED_WITHIN = 1800.0
"""Seconds for pip."""
PEERS = {"flower": "flwr[simulation]==1.41.0", "pfl": "pfl[pytorch]==0.6.0"}


def pinned_torch() -> str:
    """Its line in the requirements: a CPU build here stays one there, and both sides compute with the same kernels."""
    found = re.search(r"^torch==\S+$", (ROOT / "fedpns_ray" / "requirements.txt").read_text(), re.MULTILINE)
    assert found
    return found[0]


def python_of(peer: str) -> Path:
    """The Python of an engine's environment, which is made first if need be."""
    folder, wanted = KEPT / peer, [PEERS[peer], pinned_torch()]
    mark, python = folder / "installed.json", folder / "bin" / "python"
    if mark.exists() and json.loads(mark.read_text()) == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    KEPT.mkdir(exist_ok=True)
    log = KEPT / f"{peer}.log"
    venv.create(folder, with_pip=True)
    with log.open("w") as output:
        command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *wanted, "numpy"]
        process = subprocess.Popen(command, env=environment(), stdout=output, stderr=subprocess.STDOUT)
        code = awaited(process, INSTALLED_WITHIN, f"installing {PEERS[peer]}", Progress(sys.stderr))
    if code:
        raise Unavailable(f"{PEERS[peer]} cannot be installed ({tail(log)}; see {log.relative_to(ROOT)})")
    mark.write_text(json.dumps(wanted))
    return python
