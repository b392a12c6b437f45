"""The paper's image data sets: fetched once, verified, kept as uint8."""

from __future__ import annotations

from typing import Any, ClassVar

from fedpns_ray.data.interfaces import Dataset, Outline, Samples
from fedpns_ray.data.sources import load


class ImageDataset(Dataset):
    """Images that `fedpns data fetch` can fetch."""

    pictures: ClassVar[Outline]

    def load(self) -> Samples:
        return load(self.name)

    def outline(self) -> Outline:
        return self.pictures


class MnistDataset(ImageDataset):
    """Handwritten digits (LeCun et al. 1998)."""

    name = "mnist"
    defaults: ClassVar[dict[str, Any]] = {"model": "cnn-m"}
    pictures = Outline((1, 28, 28), 70_000)


class FashionMnistDataset(ImageDataset):
    """Articles of clothing (Xiao et al. 2017)."""

    name = "fashion-mnist"
    defaults: ClassVar[dict[str, Any]] = {"model": "cnn-m"}
    pictures = Outline((1, 28, 28), 70_000)


class Cifar10Dataset(ImageDataset):
    """Colour photographs of ten kinds of things (Krizhevsky 2009)."""

    name = "cifar10"
    defaults: ClassVar[dict[str, Any]] = {"model": "cnn-c", "epochs": 5}
    pictures = Outline((3, 32, 32), 60_000)
