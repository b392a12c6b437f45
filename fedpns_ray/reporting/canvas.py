"""Figures, set up in one place: without pyplot, so that no backend is chosen for the process that draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


COLUMN, PAGE = 3.5, 7.16
"""Inches: one column of a two-column paper, and both."""
STYLE = {
    "font.size": 7.5, "axes.titlesize": 7.5, "axes.labelsize": 7.5, "legend.fontsize": 7.5, "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5, "axes.linewidth": 0.6, "figure.titlesize": 8.5, "pdf.fonttype": 42,
    "lines.linewidth": 0.9,
}  # fmt: skip
"""Type 42: glyphs are embedded as a font, so text can be searched and is never a picture."""


def panels(down: int, across: int, size: tuple[float, float], **options: Any) -> tuple[Figure, Any]:
    """A figure of `size` inches, and its axes as an array of `down` rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(down, across, squeeze=False, **options)


def bare(axis: Any) -> None:
    """Hide the frame above and to the right."""
    axis.spines[["top", "right"]].set_visible(False)


def name_lines(axis: Any, ends: Sequence[tuple[str, tuple[float, float], str]]) -> None:
    """Write the name of every line beside its end, in its colour; names that would overlap are moved apart."""
    if not ends:
        return
    low, high = axis.get_ylim()
    figure = axis.figure
    rows = max(1.0, figure.get_figheight() / len({round(a.get_position().y0, 3) for a in figure.axes}) - 0.7)
    size = min(8.0, axis.xaxis.get_ticklabels()[0].get_fontsize())
    gap = (high - low) * size * 1.4 / 72 / rows
    ordered = sorted(ends, key=lambda end: end[1][1])
    heights = [at[1] for _, at, _ in ordered]
    for k in range(1, len(heights)):
        heights[k] = max(heights[k], heights[k - 1] + gap)
    over = max(0.0, heights[-1] - high)
    for k in reversed(range(len(heights))):  # back under the top
        most = heights[k + 1] - gap if k + 1 < len(heights) else heights[k] - over
        heights[k] = min(heights[k], most)
    for (name, _, colour), height in zip(ordered, heights, strict=True):
        axis.annotate(
            name, xy=(1, height), xycoords=("axes fraction", "data"), xytext=(3, 0), textcoords="offset points",
            color=colour, fontsize=size, va="center", ha="left", annotation_clip=False,
        )  # fmt: skip
