"""The published curves of the paper, each identified by the experiment that it shows.

`published.json` holds them as recovered from the authors' figure files: means over seeds without error bars, points
missing where a line left the plot. The file holds accuracies in percent; here they are between 0 and 1.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import pandas as pd

from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import setting_name
from fedpns_ray.records.record import Record

STRATEGIES = {"FedPNS": "fedpns", "FedAvg": "fedavg", "BN2": "bn2", "Optimal Aggregation": "optimal-aggregation"}
QUANTITIES = {"test accuracy (%)": Record.test_accuracy, "training loss": Record.test_loss}
"""The paper's "training loss" behaves like test loss: it starts at ln 10 and falls with it."""
SYMBOLS = {"sigma": "σ", "rho": "ρ", "varrho": "ϱ"}


def published(experiment: Experiment, quantity: str) -> pd.Series[float] | None:
    """The paper's curve for this experiment, by round; None if it shows none."""
    return _curves().get((setting_name(experiment), quantity))


@cache
def data() -> dict[str, Any]:
    """Everything as it was recovered: figure → panels."""
    content: dict[str, Any] = json.loads(
        files("fedpns_ray.reporting").joinpath("published.json").read_text(encoding="utf-8")
    )
    return content["figures"]


class Panel(NamedTuple):
    """A panel of a figure, in its place in the paper."""

    row: int
    column: int
    title: str
    quantity: str
    curves: list[tuple[str, Experiment, str]]
    """The name in the paper, the experiment, the key of the quantity."""


def figures() -> dict[str, list[Panel]]:
    """The figures with curves as the paper arranges them: 1 and 6 have a second part below the first."""
    found: dict[str, list[Panel]] = {}
    for name, panels in data().items():
        for panel in panels if isinstance(panels, list) else ():
            curves = [(curve, *_shown(name, panel, curve)) for curve in panel["curves"]]
            row = panel["row"] + (name == "fig6b")
            setting = panel["setting"]
            title = ", ".join(
                [setting["model"], *(f"{SYMBOLS[key]} = {setting[key]}" for key in SYMBOLS if key in setting)]
            )
            found.setdefault(name.rstrip("ab"), []).append(
                Panel(row, panel["column"], title, panel["quantity"], curves)
            )
    return found


def triples() -> pd.DataFrame:
    """The lower part of Figure 1: how often every node was drawn, labelled and excluded, in one run."""
    nodes = data()["fig1b"]["nodes"]
    return pd.DataFrame.from_dict(nodes, orient="index").set_index(pd.Index(map(int, nodes))).sort_index()


@cache
def _curves() -> dict[tuple[str, str], pd.Series[float]]:
    found: dict[tuple[str, str], pd.Series[float]] = {}
    for figure, panels in data().items():
        for panel in panels if isinstance(panels, list) else ():
            for name, points in panel["curves"].items():
                experiment, quantity = _shown(figure, panel, name)
                curve = pd.Series(dict(points), dtype=float, name=name).rename_axis("round")
                curve = curve / 100 if quantity == Record.test_accuracy else curve
                known = found.get((setting_name(experiment), quantity))
                if known is None or len(curve) > len(known):  # some curves appear in several figures, cut differently
                    found[setting_name(experiment), quantity] = curve
    return found


def _shown(figure: str, panel: dict[str, Any], name: str) -> tuple[Experiment, str]:
    """The experiment and the quantity that a curve of a panel shows."""
    setting = {key: panel["setting"][key] for key in ("sigma", "rho", "varrho") if key in panel["setting"]}
    setting["dataset"] = {"MNIST": "mnist", "CIFAR-10": "cifar10", "synthetic": "synthetic"}[
        panel["setting"]["dataset"]
    ]
    setting["model"] = panel["setting"]["model"].lower()
    quantity = QUANTITIES.get(panel["quantity"], "")
    if figure == "fig1a":
        setting["selection"] = "half"
    if figure == "fig6a":  # measured over the |M| = 20 random nodes that BN2 trains
        setting["strategy"] = "bn2"
        quantity = {"i.i.d.": Record.gradient_norm_iid, "non-i.i.d.": Record.gradient_norm_other}[name]
    elif name in STRATEGIES:
        setting["strategy"] = STRATEGIES[name]
    else:  # β=0.7,α=2
        beta, alpha = (float(part.partition("=")[2]) for part in name.split(","))
        setting |= {"strategy": "fedpns", "alpha": alpha, "beta": beta}
    return Experiment(**setting), quantity
