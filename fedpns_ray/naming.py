"""Names of folders and settings, made of what an experiment is."""

from __future__ import annotations

import hashlib
import re

from fedpns_ray.experiment import Experiment


def folder_name(*experiments: Experiment) -> str:
    """A folder name that only the same experiments share (whatever their number of rounds)."""
    digest = hashlib.sha256("".join(e.but(rounds=1).to_yaml() for e in experiments).encode()).hexdigest()[:8]
    first = experiments[0]
    what = f"{first.label}-seed{first.seed}" if len(experiments) == 1 else f"{len(experiments)}-runs"
    return f"{as_folder(first.dataset)}-{as_folder(what)}-{digest}"


def setting_name(experiment: Experiment) -> str:
    """A name that is the same for all seeds and numbers of rounds of an experiment."""
    return folder_name(experiment.but(seed=1))


def as_folder(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_+-]", "-", text)
