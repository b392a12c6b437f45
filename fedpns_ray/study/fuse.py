"""Which trials of a study run fused: in one worker that trains and tests all of them together.

They must share their shapes and what they are tested on; each has its own folder, as if it ran alone, so that a study
may be resumed with another `fuse`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from fedpns_ray.data.interfaces import GeneratedDataset
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.runtime.memory import SUMMED_UP, needed
from fedpns_ray.study.trials import Trial

Fuse = str | int
"""auto, off, or the number of trials in a worker."""
MOST, MOST_BY_ITSELF = 64, 16
"""The most trials in one worker, and the most unless told: with more, little is left to gain."""
ALLOWED = f"it must be auto, off, or a number of trials from 2 to {MOST}"
PAYS_ON_A_CORE = ("mlr",)
"""Models whose trials are fused on a core unless told otherwise: their tests convert images as long as they compute."""
WORKER_MEMORY = 2 * 10**9
"""Bytes that the trials of one worker may take together, beside the data set that they share."""


def parse_fuse(given: Any) -> Fuse:
    """What a file or a flag says; a ValueError for anything else. YAML reads `off` as false."""
    if given is False:
        return "off"
    if given in ("auto", "off"):
        return str(given)
    if not isinstance(given, bool) and str(given).isdecimal() and 2 <= int(given) <= MOST:
        return int(given)
    raise ValueError(ALLOWED)


def checked_fuse(given: Any) -> Fuse:
    """The same as an option: an InputError for anything else."""
    try:
        return parse_fuse(given)
    except ValueError as error:
        raise InputError("fuse", given, str(error)) from None


def cohorts_of(
    trials: Sequence[Trial], fuse: Fuse, on_gpu: Callable[[Experiment], bool], at_once: int
) -> list[list[Trial]]:
    """The trials that run fused, cohort by cohort. Those that are in none run alone.

    `auto`: on GPUs all that share shapes, on cores only MLR; and never so few workers that some of those that could
    run `at_once` have nothing to do.
    """
    if fuse == "off":
        return []
    alike: dict[str, list[Trial]] = {}
    for trial in trials:
        e = trial.experiment
        wanted = isinstance(fuse, int) or on_gpu(e) or e.model in PAYS_ON_A_CORE
        if wanted and not e.slow_fraction:  # simulated delays would add up
            alike.setdefault(f"{on_gpu(e)} {shapes(e)}", []).append(trial)
    total, found = sum(map(len, alike.values())), []
    for some in alike.values():
        if isinstance(fuse, int):
            count = math.ceil(len(some) / min(fuse, _most(some[0].experiment)))
        else:
            workers = -(-at_once * len(some) // total)
            count = workers * math.ceil(len(some) / (workers * min(MOST_BY_ITSELF, _most(some[0].experiment))))
        bounds = [round(len(some) * k / count) for k in range(count + 1)]
        found += [some[a:b] for a, b in pairwise(bounds)]
    return [cohort for cohort in found if len(cohort) > 1]


def shapes(experiment: Experiment) -> str:
    """Trials that agree on this can be fused."""
    e = experiment
    data = e.data_settings() if isinstance(e.build_dataset(), GeneratedDataset) else e.data_name
    shape = (e.model, e.batch_size, e.samples_per_node, e.size_spread, e.optimizer)
    return str((*shape, e.loss, e.buffers, e.vectorize, e.fast_math, data))


def _most(experiment: Experiment) -> int:
    """How many trials fit into one worker's memory."""
    need, shared = needed(experiment), 0
    if not isinstance(dataset := experiment.build_dataset(), GeneratedDataset):
        shared = dataset.bytes_held() + SUMMED_UP
    return max(1, WORKER_MEMORY // max(1, need.data + need.updates - shared))
