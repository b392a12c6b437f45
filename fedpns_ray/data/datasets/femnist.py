"""FEMNIST: handwritten characters that know their writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from fedpns_ray.data import sources
from fedpns_ray.data.datasets.images import ImageDataset
from fedpns_ray.data.interfaces import Samples
from fedpns_ray.data.official.femnist import FEMNIST


class FemnistDataset(ImageDataset):
    """Handwritten digits and letters of 62 classes; every writer is an owner (Caldas et al. 2018, LEAF)."""

    name = "femnist"
    defaults: ClassVar[dict[str, Any]] = {"model": "mlr", "partition": "natural"}
    owners = True

    def load(self) -> Samples:
        root = sources.data_root()
        if _outdated(root / f"{self.name}.npz", root):
            sources.fetch(self.name, root)
        return sources.load(self.name, root)


def _outdated(prepared: Path, root: Path) -> bool:
    """Whether a JSON file is newer than what was made of them: LEAF makes other samples with other options."""
    if not prepared.exists():
        return False
    made = prepared.stat().st_mtime_ns
    return any(path.stat().st_mtime_ns > made for half in ("train", "test") for path in FEMNIST.files(root, half))
