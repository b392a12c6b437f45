"""What nodes learn from: data sets and partitions, as parts, and the samples that pass between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.core.interfaces import Part
from fedpns_ray.data.holdings import Positions

if TYPE_CHECKING:
    from fedpns_ray.data.population import Population

Features = NDArray[np.uint8] | NDArray[np.float32] | NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """A training and a test set: features (uint8 images, float32 vectors or int64 tokens) and what is to be predicted.

    Labels are 0 .. classes - 1; images are seen by models as (x / 255 - mean) / deviation.
    """

    train_x: Features
    train_y: NDArray[Any]
    test_x: Features
    test_y: NDArray[Any]
    mean: float = 0.0
    deviation: float = 1.0
    classes: int = 10
    train_node: NDArray[np.int64] | None = None
    """The natural owner of each training sample, if the data set has owners: 0, 1, …"""
    task: str = "classification"
    """classification, next-token, or regression, whose targets are float32 and whose `classes` are their numbers."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.train_x.shape[1:]

    @property
    def targets(self) -> tuple[int, ...]:
        """The shape of one target; empty for a single label or number."""
        return self.train_y.shape[1:]

    @property
    def labels(self) -> NDArray[np.int64]:
        """One label per training sample."""
        return self.labels_of(self.train_y)

    def labels_of(self, targets: NDArray[Any]) -> NDArray[np.int64]:
        """One label per sample: of several positions the last one's; in a regression all have the same."""
        if self.task == "regression":
            return np.zeros(len(targets), dtype=np.int64)
        return targets.reshape(len(targets), -1)[:, -1]

    @cached_property
    def tokens(self) -> int | None:
        """The highest token of the features; None where they are not tokens."""
        if self.train_x.dtype != np.int64:
            return None
        return max((int(x.max()) for x in (self.train_x, self.test_x) if x.size), default=0)


class Outline(NamedTuple):
    """What is known about a data set before it is loaded, to estimate memory."""

    shape: tuple[int, ...]
    samples: int
    """Samples that are held in memory, whatever the number of nodes."""
    classes: int = 10
    tokens: int | None = None
    """The highest token, where the features are tokens."""
    task: str = "classification"
    targets: tuple[int, ...] = ()
    """The shape of one target; empty for a single label or number."""


class Dataset(Part):
    """What is learned. Samples are the same for every seed; a partition decides which node holds which."""

    defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings that go with this data set unless the user says otherwise, such as its model."""
    partitions: ClassVar[tuple[str, ...]] = ()
    """The partitions that it can be used with; empty: all that are not natural."""
    owners: ClassVar[bool] = False
    """Whether its samples may have owners (`Samples.train_node`): then natural partitions are possible, too."""
    required: ClassVar[tuple[str, ...]] = ("load",)

    def load(self) -> Samples:
        """The samples; an InputError if they cannot be had."""
        raise NotImplementedError

    def outline(self) -> Outline | None:
        """None if it is known only by loading."""
        return None

    def bytes_held(self) -> int:
        """What its samples take in memory; 0 if that is known only by loading."""
        outline = self.outline()
        return outline.samples * math.prod(outline.shape) if outline else 0


MOST_HELD = 1_000
"""The most nodes whose generated samples are all held in memory; those of larger populations are made when drawn."""


class GeneratedDataset(Dataset):
    """A data set that is made for its nodes: it decides itself who holds what."""

    partitions: ClassVar[tuple[str, ...]] = ("natural",)
    required: ClassVar[tuple[str, ...]] = ("population",)

    def population(self, seed: int, sizes: NDArray[np.int64]) -> Population:
        """The population; `sizes` are the samples that nodes are asked to have."""
        raise NotImplementedError

    def iid_nodes(self, nodes: int) -> int:
        """How many nodes hold i.i.d. data; they are the first ones."""
        return 0


Held = Sequence[Positions]
"""For each node, the positions of its samples in the training set: a list, or Holdings, which cost less."""


class Partition(Part):
    """Who holds what."""

    natural: ClassVar[bool] = False
    """Whether samples have owners, so that sizes are not a matter of choice."""
    sized: ClassVar[bool] = False
    """Whether it has sizes of its own, so that samples_per_node and size_spread are not used."""
    bytes_per_sample: ClassVar[int] = 12
    """What a node's samples cost beside the data set, while they are spread: their positions, as a list."""
    by_label: ClassVar[bool] = False
    """Whether it spreads samples by their label, so that each must have exactly one."""
    required: ClassVar[tuple[str, ...]] = ("spread",)

    def check(self, classes: int, samples_per_node: int) -> None:
        """Raise an InputError for parameters that cannot work; called as early as the number of classes is known."""

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Held:
        """The samples of each node. `sizes` are those that nodes are asked to have."""
        raise NotImplementedError

    def iid_nodes(self, nodes: int) -> int:
        """How many nodes hold i.i.d. data; they are the first ones."""
        return 0
