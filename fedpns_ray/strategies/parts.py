"""What a strategy is made of: a selection, an objective and an aggregation.

A part is a pydantic model: its fields are its parameters (typed, bounded, documented; the command line and the
studies read them from here), its private attributes are its state. Parts see arrays and node ids, never a
machine, a data set or a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

Vector = NDArray[np.float32]
Probe = Callable[[Sequence[int]], NDArray[np.float64]]


class CheckLoss(Protocol):
    """The loss of a candidate model on check samples, the same samples for the whole round."""

    def __call__(self, weights: Vector, *, samples: int, first: bool) -> float: ...


@dataclass(frozen=True)
class Nodes:
    """What the server knows of the nodes before the first round."""

    sizes: NDArray[np.int64]
    """D_i, samples held by each node."""
    iid: NDArray[np.bool_]
    """Which nodes hold i.i.d. data. Only experiments such as Figure 1 may look; a method may not."""
    per_round: int
    """|S_t| = c |K|."""

    @property
    def count(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True)
class Updates:
    """What the trained nodes sent back, in the order of node ids."""

    node_ids: tuple[int, ...]
    deltas: NDArray[np.float32]
    """One row a node: delta_i = w_i - w."""
    losses: NDArray[np.float64]
    """Mean loss of each node over its local steps."""
    sizes: NDArray[np.int64]
    steps: NDArray[np.int64]
    """tau_i, local steps taken."""
    lr: float

    def __len__(self) -> int:
        return len(self.node_ids)

    def subset(self, positions: Sequence[int]) -> Updates:
        """The same updates, fewer nodes."""
        at = list(positions)
        return replace(
            self,
            node_ids=tuple(self.node_ids[k] for k in at),
            deltas=self.deltas[at],
            losses=self.losses[at],
            sizes=self.sizes[at],
            steps=self.steps[at],
        )

    def norms(self) -> NDArray[np.float64]:
        """||delta_i|| of every node, summed in float64 and by no BLAS, so that threads cannot change a bit."""
        return np.sqrt(np.einsum("ik,ik->i", self.deltas, self.deltas, dtype=np.float64))


@dataclass(frozen=True)
class Outcome:
    """What a round made of its updates."""

    weights: Vector
    aggregated: tuple[int, ...] = ()
    labelled: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    """What else belongs into the record of the round."""


class Part(BaseModel):
    """A named piece of science with parameters and, where it learns, a state."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True, allow_inf_nan=False)

    name: ClassVar[str]

    def begin(self, nodes: Nodes) -> None:
        """Called once, before round 1."""

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """All that `learn` has changed, as arrays: enough to go on from a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, NDArray[Any]]) -> None:
        """The inverse of `state_dict`."""


class Selection(Part):
    """Who trains, whose update is sent, and what the round teaches.

    `draw` and `sift` leave the state alone, `learn` alone changes it: a round may be drawn again after a fault.
    """

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        """The nodes that train this round. `probe(ids)` asks nodes for the loss of the current model on their data."""
        raise NotImplementedError

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        """After training: the updates that are sent to the server. Most methods send all of them."""
        return updates

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        """After aggregation. `updates` are those of every node that trained and returned."""

    def notes(self) -> dict[str, Any]:
        """What the record of the round should say of the selection."""
        return {}


class Objective(Part):
    """What a node minimises: the data's loss, and what a method adds to it."""

    def correct(self, gradient: Any, weights: Any, anchor: Any) -> None:
        """Add the gradient of the added term, in place.

        The tensors are flat vectors of one node, or matrices with one row a node; `anchor` is the global model w.
        """


class Aggregation(Part):
    """How updates become a model."""

    def combine(self, weights: Vector, updates: Updates, check_loss: CheckLoss) -> Outcome:
        raise NotImplementedError


class Strategy(NamedTuple):
    """Three choices; most published methods change only one of them."""

    selection: Selection
    objective: Objective
    aggregation: Aggregation

    def begin(self, nodes: Nodes) -> None:
        for part in self:
            part.begin(nodes)

    def state_dict(self) -> dict[str, NDArray[Any]]:
        return {
            f"{kind}.{key}": value for kind, part in self._asdict().items() for key, value in part.state_dict().items()
        }

    def load_state_dict(self, state: dict[str, NDArray[Any]]) -> None:
        for kind, part in self._asdict().items():
            mine = {key.split(".", 1)[1]: value for key, value in state.items() if key.startswith(f"{kind}.")}
            part.load_state_dict(mine)


def average(weights: Vector, deltas: NDArray[np.float32]) -> Vector:
    """(5): w + mean of delta_i, summed in float64 in the order of the rows."""
    return (weights + deltas.mean(axis=0, dtype=np.float64)).astype(np.float32)
