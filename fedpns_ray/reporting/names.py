"""Names as a paper writes them (FedPNS, σ = 0.2), and what settings and symbols mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedpns_ray.experiment import Experiment
from fedpns_ray.registry import known_parameters

PROPER = {
    "fedpns": "FedPNS", "fedavg": "FedAvg", "fedavg-full": "FedAvg, all nodes", "bn2": "BN2", "bc": "BC",
    "bc-bn2": "BC-BN2", "optimal-aggregation": "Optimal Aggregation", "oort": "Oort", "fedprox": "FedProx",
    "power-of-choice": "Power-of-Choice", "fedadp": "FedAdp", "scaffold": "SCAFFOLD", "cmfl": "CMFL",
    "fedavgm": "FedAvgM", "fedadam": "FedAdam", "fedyogi": "FedYogi", "fedadagrad": "FedAdagrad", "fedcs": "FedCS",
    "norm-sampling": "norm sampling", "optimal-sampling": "optimal sampling",
    "importance-latency": "importance and latency", "divfl": "DivFL", "fedcor": "FedCor", "afl": "AFL",
    "clustered-size": "clustered by size", "clustered-similarity": "clustered by similarity", "hics": "HiCS-FL",
    "tifl": "TiFL", "gpfl": "GPFL", "shapley": "Shapley values", "predicted-updates": "predicted updates",
    "mlr": "MLR", "cnn-m": "CNN-M", "cnn-c": "CNN-C",
    "mnist": "MNIST", "cifar10": "CIFAR-10",
}  # fmt: skip
"""Strategies, models and data sets; a name that is not here is shown as it is."""
SYMBOLS = {"sigma": "σ", "rho": "ρ", "varrho": "ϱ", "alpha": "α", "beta": "β", "lr": "η", "epochs": "E", "nodes": "|K|"}
BARE = ("strategy", "model", "dataset")
"""Settings whose value says enough."""


def proper(name: str) -> str:
    return PROPER.get(name, name)


def in_words(row: Mapping[Any, Any], keys: Iterable[str], symbols: bool = False) -> str:
    """`fedpns, alpha 2`; with symbols `FedPNS, α = 2`. What is not set (NaN) is left out."""
    there = [key for key in keys if row.get(key) is not None and row[key] == row[key]]
    return ", ".join(_with_symbol(key, row[key]) if symbols else _in_words(key, row[key]) for key in there)


def _in_words(key: str, value: Any) -> str:
    if key in BARE[:2]:
        return str(value)
    return f"{key} {value:g}" if isinstance(value, (int, float)) else f"{key} {value}"


def _with_symbol(key: str, value: Any) -> str:
    text = f"{value:g}" if isinstance(value, (int, float)) else proper(str(value))
    return text if key in BARE else f"{SYMBOLS[key]} = {text}" if key in SYMBOLS else f"{key.replace('_', ' ')} {text}"


def meaning(key: str) -> str:
    """What a setting is, in a sentence; empty if it is not one of ours."""
    if key in Experiment.model_fields:
        return _sentence(Experiment.model_fields[key].description)
    takers = known_parameters().get(key)
    return _sentence(takers[-1].description) if takers else ""


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())
