"""The picture of docs/performance.md: cost against nodes, drawn nodes and trials, from ratios.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.same_bits.checkout import ROOT

PICTURE = ROOT / "docs" / "performance.png"
PANELS = {
    "nodes": ("nodes (10 drawn)", "time of a round,\nagainst 50 nodes", 50),
    "drawn": ("drawn nodes", "time per drawn node,\nagainst 10 drawn", 10),
    "trials": ("trials of a study", "time per trial of the whole command,\nagainst 4 trials", 4),
}


def draw(found: Mapping[str, Any], path: Path = PICTURE) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    measured = {entry: panel for entry, panel in PANELS.items() if entry in found}
    if not measured:
        return
    size = (4 * len(measured), 3.6)
    fig, axes = plt.subplots(1, len(measured), figsize=size, layout="constrained", squeeze=False)
    for ax, (entry, (what, cost, first)) in zip(axes[0], measured.items(), strict=True):
        curves: dict[str, list[tuple[float, float, float, float]]] = {}
        for name, figure in found[entry]["figures"].items():
            if at := figure.get("at"):
                start = [(float(first), 1.0, 1.0, 1.0)]
                point = (at, figure["median"], figure["low"], figure["high"])
                curves.setdefault(name.rpartition(" ")[0].rpartition(", ")[2], start).append(point)
        for name, points in curves.items():
            x, y, low, high = zip(*sorted(points), strict=True)
            below, above = ([abs(a - b) for a, b in zip(y, end, strict=True)] for end in (low, high))
            ax.errorbar(x, y, yerr=[below, above], marker="o", markersize=4, capsize=3, linewidth=1.2, label=name)
        ax.axhline(1, color="grey", linewidth=0.8, linestyle=":")
        ax.set(xscale="log", xlabel=what, ylabel=cost)
        at = sorted({point[0] for points in curves.values() for point in points})
        ax.set_xticks(at, [f"{x:,.0f}" for x in at])
        ax.minorticks_off()
        ax.set_ylim(0, max(1.6, ax.get_ylim()[1]))
        if len(curves) > 1:
            ax.legend(frameon=False, fontsize=8)
    fig.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(fig)
