"""Small data sets of every kind of task, as a user might bring them."""

from typing import ClassVar

import numpy as np

from fedpns_ray.data.interfaces import Dataset, Samples


class Photographs(Dataset):
    """Of CIFAR-100's shape: 32 x 32 in colour, 100 classes."""

    name = "photographs"
    defaults: ClassVar = {"model": "resnet18-gn", "partition": "iid"}

    def load(self):
        rng = np.random.default_rng(7)
        x, y = rng.integers(0, 256, (25, 3, 32, 32), dtype=np.uint8), rng.integers(0, 100, 25)
        return Samples(x[:20], y[:20], x[20:], y[20:], mean=0.5, deviation=0.25, classes=100)


class Texts(Dataset):
    """Cyclic texts over 12 characters, of which the next one is to be guessed."""

    name = "texts"
    defaults: ClassVar = {"model": "char-lstm", "partition": "iid"}
    characters: int = 12

    def load(self):
        starts = np.random.default_rng(7).integers(0, 12, 160)
        x = (starts[:, None] + np.arange(10)) % 12
        y = (starts + 10) % 12
        return Samples(x[:120], y[:120], x[120:], y[120:], classes=self.characters)
