"""Data sets that others published."""

from __future__ import annotations

from pathlib import Path

from fedpns_ray.data.interfaces import Dataset


class OfficialDataset(Dataset):
    """A data set that others published: its files lie under the data root, and are verified before they are used."""

    def standing(self, root: Path) -> str:
        """What is there, in words; empty if nothing is."""
        raise NotImplementedError

    def fetch(self, root: Path) -> Path:
        """Make it ready for runs, from the files that are there or by download; returns what runs will read."""
        raise NotImplementedError

    def verify(self, root: Path) -> str:
        """How far what is there was found to be as published, in words; an InputError if it is not."""
        raise NotImplementedError
