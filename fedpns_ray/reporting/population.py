"""A picture of the data: which labels every node holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpns_ray.atomic_file import replacing
from fedpns_ray.data import Population
from fedpns_ray.experiment import Experiment
from fedpns_ray.reporting.canvas import bare, panels
from fedpns_ray.reporting.targets import marked, refuse_foreign


def picture_formats() -> tuple[str, ...]:
    return (".png", ".pdf", ".svg")


def draw(population: Population, experiment: Experiment, path: Path) -> None:
    """Draw a population. Above: samples of every label on every node. Below: q_dif (Theorem 1)."""
    nodes = population.described
    width = float(np.clip(len(nodes) * 0.16, 6, 24))
    figure, ((top,), (bottom,)) = panels(2, 1, (width, 5), sharex=True, height_ratios=[3, 1])
    image = top.imshow(population.histogram.T, aspect="auto", cmap="viridis", interpolation="nearest")
    top.set(ylabel="label", yticks=range(population.samples.classes))
    figure.colorbar(image, ax=top, label="samples", pad=0.01)
    colours = np.where(population.iid[nodes], "#0072B2", "#D55E00")
    bottom.bar(np.arange(len(nodes)), population.q_dif, color=colours, width=0.85)
    bottom.set(
        xlabel="node (blue: i.i.d.)" if len(nodes) == population.count else "evenly spaced nodes (blue: i.i.d.)",
        ylabel="q_dif",
        ylim=(0, 2),
    )
    bare(bottom)
    shown = ("partition", "sigma", "rho", "varrho", "concentration", "shards_per_node", "seed")
    settings = experiment.settings()
    text = ", ".join(f"{key} {settings[key]}" for key in shown if key in settings)
    figure.suptitle(f"{experiment.dataset}, {population.count} nodes: {text}", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_foreign(path, path.suffix)
    with replacing(path) as partial:
        figure.savefig(partial, dpi=150, metadata=marked(path.suffix))
