"""Figures, set up in one place: without pyplot, so that no backend is chosen for the process that draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def panels(down: int, across: int, size: tuple[float, float], **options: Any) -> tuple[Figure, Any]:
    """A figure of `size` inches, and its axes as an array of `down` rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(down, across, squeeze=False, **options)


def bare(axis: Any) -> None:
    """Hide the frame above and to the right."""
    axis.spines[["top", "right"]].set_visible(False)
