"""The base commit, checked out with its own environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.same_bits.processes import Progress, awaited, environment, tail
from fedpns_ray.errors import InputError, Shown, one_line

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".same-bits"
GIT_WITHIN, SET_UP_WITHIN = 120.0, 3600.0
"""Seconds for a call of git, and for setting up an environment."""


def git(*arguments: str, at: Path = ROOT) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=at, capture_output=True, text=True, timeout=GIT_WITHIN)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"git {arguments[0]}", problem=one_line(error)) from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"git {arguments[0]}", problem=reason)
    return done.stdout.strip()


def full_commit(base: str) -> str:
    if not base:
        hint = "name the commit to compare with, as in make same-bits BASE=7f877ab"
        raise InputError("BASE", hint=hint, problem="is missing")
    try:
        return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    except InputError:
        raise InputError("BASE", Shown(base), problem="is not a commit of this repository") from None


def tree_of(commit: str) -> Path:
    """The commit's tree, checked out now or kept from an earlier call."""
    KEPT.mkdir(exist_ok=True)
    tree = KEPT / commit
    if not tree.exists():
        partial = KEPT / f"{commit}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        common = git("rev-parse", "--path-format=absolute", "--git-common-dir")
        git("clone", "--quiet", "--shared", "--no-checkout", common, str(partial))
        git("checkout", "--quiet", "--detach", commit, at=partial)
        partial.rename(tree)
    if git("rev-parse", "HEAD", at=tree) != commit or git("status", "--porcelain", "--untracked-files=no", at=tree):
        git("checkout", "--quiet", "--force", "--detach", commit, at=tree)
    return tree


def check_out(commit: str, progress: Progress) -> Path:
    """The commit's tree with its environment, set up by the commit's own Makefile or kept from an earlier call."""
    tree = tree_of(commit)
    log = KEPT / f"{commit}.log"
    make = ["make", ".venv/.ready", f"PYTHON={Path(sys.base_prefix) / 'bin' / 'python3'}"]
    with log.open("w") as output:
        process = subprocess.Popen(make, cwd=tree, env=environment(), stdout=output, stderr=subprocess.STDOUT)
        code = awaited(process, SET_UP_WITHIN, f"the environment of {commit[:7]}", progress)
    if code:
        problem = f"cannot be set up (make .venv/.ready: {tail(log)})"
        raise InputError("BASE", Shown(commit[:7]), hint=f"see {log}", problem=problem)
    return tree
