"""Small data sets of every kind of task, as a user might bring them."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from torch import nn

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


class Passages(Texts):
    """The same texts, where the next character is to be guessed at every position."""

    name = "passages"
    defaults: ClassVar = {"model": "tests.small_data:EveryPosition", "partition": "iid"}

    def load(self):
        s = super().load()
        return Samples(s.train_x, (s.train_x + 1) % 12, s.test_x, (s.test_x + 1) % 12, classes=12, task="next-token")


class EveryPosition(nn.Module):
    """A guess from the character before, at each position."""

    def __init__(self, classes):
        super().__init__()
        self.table = nn.Embedding(classes, classes)

    def forward(self, x):
        return self.table(x)


class Lines(Dataset):
    """A regression: y = 2 x_1 - x_2, or both x_1 + x_2 and x_1 - x_2."""

    name = "lines"
    defaults: ClassVar = {"model": "mlr", "partition": "iid", "samples_per_node": 30, "epochs": 5}
    outputs: int = 1
    classes: int = 0

    def load(self):
        x = np.random.default_rng(7).standard_normal((200, 2)).astype(np.float32)
        y = 2 * x[:, 0] - x[:, 1] if self.outputs == 1 else np.stack([x[:, 0] + x[:, 1], x[:, 0] - x[:, 1]], axis=1)
        classes = self.classes or self.outputs
        return Samples(x[:120], y[:120], x[120:], y[120:], classes=classes, task="regression")


class Unheard(Lines):
    """A task that nobody knows."""

    name = "unheard"

    def load(self):
        return replace(super().load(), task="ranking")
