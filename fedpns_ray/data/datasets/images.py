"""Image data sets: fetched once, verified, kept as uint8."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from fedpns_ray.data import sources
from fedpns_ray.data.interfaces import Outline, Samples
from fedpns_ray.data.official.dataset import OfficialDataset


class ImageDataset(OfficialDataset):
    """Images that `fedpns data fetch` can fetch."""

    pictures: ClassVar[Outline | None] = None

    def load(self) -> Samples:
        return sources.load(self.name)

    def outline(self) -> Outline | None:
        return self.pictures

    def standing(self, root: Path) -> str:
        return sources.standing(self.name, root)

    def fetch(self, root: Path) -> Path:
        return sources.fetch(self.name, root)

    def verify(self, root: Path) -> str:
        return sources.verify(self.name, root)


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


class KmnistDataset(ImageDataset):
    """Cursive Japanese characters of ten kinds (Clanuwat et al. 2018)."""

    name = "kmnist"
    defaults: ClassVar[dict[str, Any]] = {"model": "cnn-m"}
    pictures = Outline((1, 28, 28), 70_000)


class EmnistDataset(ImageDataset):
    """Handwritten digits and letters, the balanced split of 47 classes (Cohen et al. 2017)."""

    name = "emnist"
    defaults: ClassVar[dict[str, Any]] = {"model": "mlr"}
    pictures = Outline((1, 28, 28), 131_600, 47)


class Cifar100Dataset(ImageDataset):
    """Colour photographs of a hundred kinds of things (Krizhevsky 2009)."""

    name = "cifar100"
    defaults: ClassVar[dict[str, Any]] = {"model": "resnet18-gn", "epochs": 5}
    pictures = Outline((3, 32, 32), 60_000, 100)


class SvhnDataset(ImageDataset):
    """Digits of house numbers, in colour (Netzer et al. 2011)."""

    name = "svhn"
    defaults: ClassVar[dict[str, Any]] = {"model": "cnn-c"}
    pictures = Outline((3, 32, 32), 99_289)
