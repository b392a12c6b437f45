"""FEMNIST: handwritten characters that know their writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from fedpns_ray.data import sources
from fedpns_ray.data.datasets.images import ImageDataset
from fedpns_ray.data.interfaces import Outline, Samples
from fedpns_ray.data.official.femnist import FEMNIST, HALVES, PIXELS
from fedpns_ray.data.packing import bytes_of_arrays


class FemnistDataset(ImageDataset):
    """Handwritten digits and letters of 62 classes; every writer is an owner (Caldas et al. 2018, LEAF)."""

    name = "femnist"
    defaults: ClassVar[dict[str, Any]] = {"model": "mlr", "partition": "natural"}
    owners = True

    def outline(self) -> Outline:
        """LEAF's options decide how many samples there are: as many as fit into the files that are here."""
        return Outline((1, PIXELS, PIXELS), self.bytes_held() // PIXELS**2, FEMNIST.classes)

    def bytes_held(self) -> int:
        """What was made of the JSON files holds a byte per pixel; they themselves take several, and are parsed."""
        root = sources.data_root()
        made = bytes_of_arrays(root / f"{self.name}.npz")
        return made or sum(path.stat().st_size for half in HALVES for path in FEMNIST.files(root, half))

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
    return any(path.stat().st_mtime_ns > made for half in HALVES for path in FEMNIST.files(root, half))
