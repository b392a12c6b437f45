"""A population: which node holds which samples, and how far its labels are from the population's."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpns_ray.data.interfaces import Samples


@dataclass(frozen=True)
class Population:
    """Samples, and for each node the positions of those it holds. A node costs its indices, not a copy of the data."""

    samples: Samples
    indices: NDArray[np.int64]
    """Positions in the training set, node after node."""
    offsets: NDArray[np.int64]
    """Node i holds indices[offsets[i] : offsets[i + 1]]."""
    iid: NDArray[np.bool_]
    """Which nodes hold i.i.d. data."""

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """D_i."""
        return np.diff(self.offsets)

    def held_by(self, node: int) -> NDArray[np.int64]:
        return self.indices[self.offsets[node] : self.offsets[node + 1]]

    @cached_property
    def histogram(self) -> NDArray[np.int64]:
        """The number of samples of each label on each node."""
        owner = np.repeat(np.arange(self.count), self.sizes)
        cells = owner * self.samples.classes + self.samples.labels[self.indices]
        counts = np.bincount(cells, minlength=self.count * self.samples.classes)
        return counts.reshape(self.count, self.samples.classes)

    @cached_property
    def q_dif(self) -> NDArray[np.float64]:
        """Theorem 1: the L1 distance of a node's label distribution from the population's."""
        q = self.histogram.sum(axis=0) / self.histogram.sum()
        return np.abs(self.histogram / self.sizes[:, None] - q).sum(axis=1)

    @cached_property
    def sha256(self) -> str:
        """The digest of the data set and its partition: equal digests mean equal data on every node."""
        digest = hashlib.sha256()
        s = self.samples
        for array in (self.indices, self.offsets, self.iid, s.train_x, s.train_y, s.test_x, s.test_y):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def summary(self) -> dict[str, Any]:
        labelled = self.samples.task != "regression"
        groups = (self.q_dif[self.iid], self.q_dif[~self.iid])
        q_dif = [round(float(q.mean()), 4) if len(q) and labelled else None for q in groups]
        return {
            "sha256": self.sha256,
            "nodes": self.count,
            "iid_nodes": int(self.iid.sum()),
            "samples": int(self.sizes.sum()),
            "distinct_samples": len(np.unique(self.indices)),
            "q_dif_iid": q_dif[0],
            "q_dif_other": q_dif[1],
        }


def from_lists(samples: Samples, held: list[NDArray[np.int64]], iid: NDArray[np.bool_]) -> Population:
    offsets = np.concatenate([[0], np.cumsum([len(own) for own in held])])
    return Population(samples, np.concatenate(held), offsets, iid)
