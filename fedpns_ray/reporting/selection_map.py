"""The nodes of the page: every node's fate in every round, its probability, and the labels that it holds."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data import build_population, load_samples
from fedpns_ray.data.interfaces import Samples
from fedpns_ray.data.population import q_dif
from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment
from fedpns_ray.records.labels import has_no_labels, read_labels
from fedpns_ray.records.record import FATES
from fedpns_ray.reporting.runs import Run
from fedpns_ray.reporting.series import compact

SELECTION_BYTES = 1_500_000
"""The most that the selection of all shown runs may take, before base64: two bytes per node and round."""
MOST_NODES = 1000
"""With more, a node is less than a pixel, and FedPNS records no probabilities."""
FATE_NAMES = ("not drawn", "drawn", "labelled, kept", "excluded", "excluded, not labelled")
"""What the codes of the map mean."""
UNLABELLED = 4
"""The code of a node that was excluded without being labelled; the fates are 1, 2 and 3 in their order."""


def chosen(groups: Iterable[Sequence[Run]]) -> tuple[list[tuple[int, Run]], str]:
    """Runs whose nodes are shown, with the number of their setting: the first seed of each setting, the second, …"""
    ranked = [
        (rank, k, run)
        for k, group in enumerate(groups)
        for rank, run in enumerate(sorted((r for r in group if r.records), key=lambda r: not r.finished))
    ]
    ranked.sort(key=lambda entry: entry[:2])
    kept: list[tuple[int, Run]] = []
    spent = 0
    for _, k, run in ranked:
        size = 2 * len(run.records) * run.experiment.nodes
        if run.experiment.nodes <= MOST_NODES and spent + size <= SELECTION_BYTES:
            spent += size
            kept.append((k, run))
    left = len(ranked) - len(kept)
    kept.sort(key=lambda entry: (entry[0], entry[1].experiment.seed))
    if not left:
        return kept, ""
    return kept, (
        f"The selection and the data of {len(kept)} of {len(ranked)} runs are shown, to keep the page small: first one "
        f"seed of each setting, then further ones; none with more than {MOST_NODES} nodes. Curves and tables cover all."
    )


def selection(run: Run, setting: int) -> dict[str, Any]:
    """Every node in every round: its fate, and its probability in 255 steps of the largest."""
    rounds, nodes, iid = len(run.records), run.experiment.nodes, run.iid_nodes
    fates = np.zeros((rounds, nodes), dtype=np.uint8)
    for row, record in zip(fates, run.records, strict=True):
        for code, fate in enumerate(FATES, start=1):
            row[record[fate]] = code
        row[[node for node in record.excluded if node not in record.labelled]] = UNLABELLED
    codes = np.unique(fates)
    found: dict[str, Any] = {
        "setting": setting,
        "seed": run.experiment.seed,
        "name": run.name,
        "nodes": nodes,
        "iid": iid,
        "rounds": rounds,
        "fates": as_base64(fates),
        "codes": [int(code) for code in codes if code],
        "population": _population_key(run.experiment),
        "share": [None] * rounds,
    }
    p = probabilities(run)
    if p is not None:
        found["probability"] = as_base64(np.rint(255 * p / p.max()).astype(np.uint8))
        found["largest"] = float(f"{p.max():.5g}")
        found["share"] = compact(p[:, :iid].sum(axis=1) / p.sum(axis=1))
    return found


def probabilities(run: Run) -> NDArray[np.float64] | None:
    """What the selection declares per node, one row per round; None if it declares nothing, or a round lacks it."""
    for quantity in run.quantities:
        if quantity.per == "node" and all(record.get(quantity.key) is not None for record in run.records):
            return np.array([record[quantity.key] for record in run.records], dtype=float)
    return None


def as_base64(array: NDArray[np.uint8]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _population_key(experiment: Experiment) -> str:
    return ", ".join(f"{key} {value}" for key, value in experiment.data_settings().items())


def populations(shown: Sequence[tuple[int, Run]]) -> tuple[dict[str, Any], list[str]]:
    """The labels on each node, once per distinct population, as its summary holds them.

    Older and unfinished runs have none: their population is built again, with a note if the data are not available.
    """
    samples: dict[str, Samples | None] = {}
    absent: dict[str, str] = {}
    found: dict[str, Any] = {}
    for _, run in shown:
        key, dataset = _population_key(run.experiment), run.experiment.data_name
        if key in found or dataset in absent:
            continue
        known = (run.summary and run.summary.population) or {}
        if has_no_labels(known):
            absent[dataset] = f"{run.experiment.dataset} is a regression: its samples have no labels."
            continue
        if (labels := read_labels(known, run.experiment.nodes)) is not None:
            found[key] = _shown(labels)
            continue
        try:
            if dataset not in samples:
                samples[dataset] = load_samples(run.experiment)
            population = build_population(run.experiment, samples[dataset])
        except InputError as error:
            absent[dataset] = f"The labels on each node of {run.experiment.dataset} are not shown: {error}"
            continue
        found[key] = _shown(population.histogram)
    return found, list(dict.fromkeys(absent.values()))


def _shown(labels: NDArray[np.int64]) -> dict[str, Any]:
    return {"histogram": labels.tolist(), "q_dif": compact(q_dif(labels))}
