"""Quantity: a number that records hold, and how people read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Quantity:
    """Declared once, by whatever measures it; tables, plots and the page find it by its declaration.

    >>> Quantity("test_accuracy", "test accuracy", unit="%", scale=100, better="higher").label
    'test accuracy (%)'
    """

    key: str
    """Its key in the record of a round."""
    title: str
    unit: str = ""
    """The unit that is shown, after scaling."""
    scale: float = 1.0
    """What a recorded value is multiplied by when it is shown: 100 for a fraction in percent."""
    better: Literal["higher", "lower", ""] = ""
    """Which way is better; empty where neither is."""
    per: Literal["round", "node", "update", "label"] = "round"
    """One number per round, or a list: one per node of the population, update of the round, or label."""

    @property
    def label(self) -> str:
        """The title with its unit, for an axis or a column."""
        return f"{self.title} ({self.unit})" if self.unit else self.title
