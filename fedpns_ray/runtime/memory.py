"""How much memory a run needs, stated before it starts, and refused where the machine does not have it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from fedpns_ray.core.node_states import vectors_kept
from fedpns_ray.data.interfaces import MOST_HELD, GeneratedDataset, Outline
from fedpns_ray.errors import InputError, Shown
from fedpns_ray.experiment import Experiment
from fedpns_ray.runtime.layout import ACTOR_MEMORY, Layout

PROCESS = 320 * 10**6
"""Bytes of a process that has imported everything, measured."""
PER_SAMPLE = 16
"""Bytes of a sample beside its features: the label, and its position in the training set."""
PER_NODE = 750
"""Bytes of a node: offsets, sizes, histograms while they are summed up, what a selection knows; measured."""
SUMMED_UP = 60 * 10**6
"""Bytes that it takes to sum up a population, a million samples at a time; measured."""
CGROUP = Path("/sys/fs/cgroup")


class Needed(NamedTuple):
    """Bytes."""

    processes: int
    data: int
    """Samples, and who holds them."""
    updates: int
    """Of a round: nodes that train, times parameters (and what nodes keep), times 4, times the copies that are made."""

    @property
    def total(self) -> int:
        return sum(self)

    def describe(self) -> str:
        parts = f"data {gigabytes(self.data)}, updates of a round {gigabytes(self.updates)}"
        return f"{gigabytes(self.total)} of memory ({parts})"


def needed(experiment: Experiment, actors: int | None = None) -> Needed:
    """What a run needs at most, within a factor of 2; None actors: it runs in this process."""
    e = experiment
    dataset = e.build_dataset()
    outline = dataset.outline()
    data = e.nodes * PER_NODE
    if isinstance(dataset, GeneratedDataset):  # elsewhere nodes hold positions of samples, not copies
        size = PER_SAMPLE + 4 * math.prod(outline.shape if outline else ())
        data += size * (_held_at_once(e) * e.samples_per_node + (outline.samples if outline else 0))
    else:
        data += e.nodes * e.samples_per_node * e.build_partition().bytes_per_sample + SUMMED_UP
        data += dataset.bytes_held()
    vectors = 1 + vectors_kept(e.build_strategy().objective, e.build_compression())
    updates = e.trained_per_round * 4 * vectors * parameters(e, outline) if outline else 0
    if actors is None:
        return Needed(PROCESS, data, updates)
    # On Ray: the population here and in the object store; updates on the actors, in the store, joined and ordered.
    return Needed(2 * PROCESS + actors * ACTOR_MEMORY, 2 * data, 4 * updates)


def _held_at_once(experiment: Experiment) -> int:
    """Nodes whose generated samples are in memory together: all, or, of many, a cohort that trains."""
    from fedpns_ray.core.training import COHORT

    return experiment.nodes if experiment.nodes <= MOST_HELD else COHORT


def actors_here(layout: Layout, experiment: Experiment, address: str | None) -> int:
    """How many actors a run will start on this machine, at most; those on the machines of a cluster are not its."""
    if address or os.environ.get("RAY_ADDRESS"):
        return 0
    asked = layout.actors or (layout.nodes_per_actor and math.ceil(experiment.nodes / layout.nodes_per_actor))
    return min(asked or os.cpu_count() or 1, experiment.nodes)


def parameters(experiment: Experiment, outline: Outline) -> int:
    from fedpns_ray.core.models import model_for, numbers_sent

    return numbers_sent(model_for(experiment, outline), experiment.buffers)


def free() -> int:
    """Bytes that this machine has free, or the container that this process is in."""
    here = int(psutil.virtual_memory().available)
    try:
        limit, used = ((CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return here
    return min(here, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else here


def refuse_too_large(experiment: Experiment, actors: int | None = None, elsewhere: bool = False) -> None:
    """An InputError with the numbers and the nearest experiment that fits, if this machine has too little memory.

    `elsewhere`: it will run on other machines, and only its data is prepared here.
    """

    def need(e: Experiment) -> Needed:
        found = needed(e, actors)
        return found._replace(updates=0) if elsewhere else found

    def fits(value: float) -> bool:
        with suppress(InputError):  # too small to be allowed
            return need(experiment.but(**{key: value})).total <= there
        return False

    whole, there = need(experiment), free()
    if whole.total <= there:
        return
    if actors and whole.processes > max(whole.data, whole.updates):
        raise _too_many(actors, whole, there)
    key = _largest(experiment, whole)
    value = getattr(experiment, key)
    numbers = _smaller(value) if isinstance(value, (int, float)) else ()
    fitting = next((f for f in numbers if fits(f)), None)
    flag = f"--{key.replace('_', '-')} {fitting}"
    hint = f"the nearest that fits: {flag}" if fitting else "free some memory, or use a larger machine"
    problem = f"needs about {whole.describe()}"
    raise InputError(key, Shown(str(value)), f"{gigabytes(there)} are free", hint, problem=problem)


def _too_many(actors: int, need: Needed, there: int) -> InputError:
    fitting = max(0, there - need.total + actors * ACTOR_MEMORY) // ACTOR_MEMORY
    hint = f"the nearest that fits: --actors {fitting}" if fitting else "free some memory, or use a larger machine"
    problem = f"actors need about {gigabytes(need.total)} of memory, {gigabytes(ACTOR_MEMORY)} each"
    return InputError("actors", Shown(str(actors)), f"{gigabytes(there)} are free", hint, problem=problem)


def _largest(experiment: Experiment, need: Needed) -> str:
    """The setting to lower."""
    if need.updates > need.data:
        return "fraction"
    if 2 * experiment.build_dataset().bytes_held() > need.data:
        return "dataset"
    return "samples_per_node" if experiment.samples_per_node > experiment.nodes else "nodes"


def _smaller(value: float) -> Iterator[float]:
    """Round numbers below a value, in small steps, down to where nothing else matters."""
    for exponent in range(math.floor(math.log10(value)), -9 if isinstance(value, float) else -1, -1):
        for digit in (9, 8, 7, 6, 5, 4, 3, 2, 1):
            found = digit * 10**exponent if exponent >= 0 else float(f"{digit}e{exponent}")
            if found < value:
                yield found


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
