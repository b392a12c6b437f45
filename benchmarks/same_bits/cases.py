"""The experiments that both sides run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedpns_ray.errors import InputError, Shown

MODELS: dict[str, dict[str, Any]] = {
    "mlr": {"dataset": "synthetic", "model": "mlr", "samples_per_node": 30, "epochs": 2},
    "cnn-m": {"dataset": "mnist", "model": "cnn-m", "samples_per_node": 40, "epochs": 1, "evaluate_every": 2},
}
LAYOUTS: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "in-process": ({}, {"nodes": 6, "fraction": 0.5}),
    "two-actors": ({"actors": 2}, {"nodes": 6, "fraction": 0.5}),
    "node-actors": ({"nodes_per_actor": 1}, {"nodes": 3, "fraction": 0.67}),
}
"""Arguments of `Layout` (none: in process), and a population of suitable size: an actor takes 3 s of CPU to start."""
COMMON: dict[str, Any] = {"rounds": 4, "sigma": 0.5, "devices": "log-normal"}
IF_TAKEN: dict[str, Any] = {"relevance": 0.55, "relevance_decay": "none", "stragglers": 0.5, "pace_window": 2}
"""Parameters for strategies that have them, with values that have an effect in runs this small."""
FEW = {"candidates": 4, "choices": 4}
"""The same, for parameters that must not exceed the number of nodes."""


def list_cases(
    strategies: Mapping[str, Sequence[str]], only: str = "", models: str = "", layouts: str = ""
) -> list[dict[str, Any]]:
    """The cases for both sides in full; the cheapest come first, so that a difference shows early."""
    return [
        {
            "name": f"{strategy}, {model}, {layout}",
            "layout": LAYOUTS[layout][0],
            "settings": {
                "strategy": strategy,
                **MODELS[model],
                **LAYOUTS[layout][1],
                **COMMON,
                **_taken(strategies[strategy], LAYOUTS[layout][1]["nodes"]),
            },
        }
        for layout in chosen(layouts, list(LAYOUTS), "--layouts")
        for model in chosen(models, list(MODELS), "--models")
        for strategy in chosen(only, list(strategies), "--only")
    ]


def chosen(given: str, known: Sequence[str], option: str) -> list[str]:
    """A selection such as `fedpns,fedavg`, in the order of `known`; all if nothing is given."""
    names = [name for name in given.replace(",", " ").split() if name]
    for name in names:
        if name not in known:
            raise InputError(option, Shown(name), f"choose from {', '.join(known)}")
    return [name for name in known if name in names or not names]


def _taken(parameters: Sequence[str], nodes: int) -> dict[str, Any]:
    values = IF_TAKEN | {key: min(most, nodes) for key, most in FEW.items()}
    return {key: value for key, value in values.items() if key in parameters}
