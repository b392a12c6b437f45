"""Nodes of several kinds, each kind with its share of the nodes and its skew."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fedpns_ray.data.holdings import Holdings, joined
from fedpns_ray.data.interfaces import Partition, Samples
from fedpns_ray.data.partitions.dirichlet import label_counts
from fedpns_ray.data.partitions.iid import iid
from fedpns_ray.data.partitions.pile import deal_labels, label_piles
from fedpns_ray.data.partitions.sigma_rho import distinct_labels, equal_parts
from fedpns_ray.errors import InputError

WRITTEN = 'it must be like "0.2 iid, 0.5 dirichlet 0.3, 0.3 labels 2"'


class Component(NamedTuple):
    """Nodes of one kind."""

    share: float
    kind: str
    skew: float
    """The concentration of a Dirichlet distribution, or the number of labels."""


class MixturePartition(Partition):
    """Kinds of nodes with their shares: i.i.d. ones first, then those of each other component in the order given.

    sigma-rho is the mixture "sigma iid, 1 - sigma labels rho"; a list of Dirichlet alphas is a mixture of Dirichlets.
    """

    name = "mixture"
    bytes_per_sample = 0
    components: str = Field("0.2 iid, 0.8 labels 1", max_length=2000)
    """Share and kind of nodes: iid, dirichlet ALPHA or labels RHO; shares sum to 1: 0.2 iid, 0.8 dirichlet 0.3."""

    @field_validator("components")
    @classmethod
    def _can_be_read(cls, text: str) -> str:
        parsed(text)
        return text

    def check(self, classes: int, samples_per_node: int) -> None:
        for component in parsed(self.components):
            if component.kind == "labels" and component.skew > min(classes, samples_per_node):
                allowed = f"a node holds at most {min(classes, samples_per_node)} labels"
                raise InputError("components", self.components, allowed)

    def iid_nodes(self, nodes: int) -> int:
        return round(sum(c.share for c in parsed(self.components) if c.kind == "iid") * nodes)

    def spread(self, rng: np.random.Generator, samples: Samples, sizes: NDArray[np.int64]) -> Holdings:
        """I.i.d. nodes draw from the whole set, all others from one pile per label."""
        even = self.iid_nodes(len(sizes))
        first = iid(rng, samples.train_y, sizes[:even]) if even else None
        piles = label_piles(rng, samples.train_y, samples.classes)
        skewed = [c for c in parsed(self.components) if c.kind != "iid" and c.share]
        if even == len(sizes) or not skewed:
            assert first is not None
            return first
        shares = np.cumsum([c.share for c in skewed])
        ends = even + np.rint(shares / shares[-1] * (len(sizes) - even)).astype(np.int64)
        starts = [even, *ends[:-1]]
        parts = [
            _labels_and_counts(rng, component, samples.classes, sizes[start:end])
            for component, start, end in zip(skewed, starts, ends, strict=True)
        ]
        width = max(labels.shape[1] for labels, _ in parts)
        labels, counts = (
            np.concatenate([np.pad(part[k], ((0, 0), (0, width - part[k].shape[1]))) for part in parts]) for k in (0, 1)
        )
        others = deal_labels(piles, labels, counts)
        return joined(first, others) if first else others


def parsed(text: str) -> list[Component]:
    """The components, as they are written."""
    found = [_component(piece.split()) for piece in text.split(",")]
    if abs(sum(component.share for component in found) - 1) > 1e-6:
        raise ValueError(f"its shares must sum to 1, and they sum to {sum(c.share for c in found):g}")
    return found


def _component(words: list[str]) -> Component:
    try:
        share, kind, skew = float(words[0]), words[1], float(words[2]) if len(words) > 2 else 0.0
    except (ValueError, IndexError):
        raise ValueError(WRITTEN) from None
    fits = {
        "iid": len(words) == 2,
        "dirichlet": len(words) == 3 and 1e-6 <= skew <= 1e9,
        "labels": len(words) == 3 and skew == int(skew) >= 1 if np.isfinite(skew) else False,
    }
    if not fits.get(kind) or not 0 <= share <= 1:
        raise ValueError(WRITTEN)
    return Component(share, kind, skew)


def _labels_and_counts(
    rng: np.random.Generator, component: Component, classes: int, sizes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each node, labels and how many samples of each."""
    if component.kind == "dirichlet":
        return np.tile(np.arange(classes), (len(sizes), 1)), label_counts(rng, classes, sizes, component.skew)
    rho = int(component.skew)
    return distinct_labels(rng, classes, rho, len(sizes)), equal_parts(sizes, rho)
