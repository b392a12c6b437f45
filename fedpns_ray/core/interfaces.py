"""What a strategy is made of: a selection, an objective, an aggregation and a server optimiser.

A part is a pydantic model: its fields are its parameters (typed, bounded, documented; the command line and the
studies read them from here), its private attributes are its state. Parts see arrays and node ids, never a
machine, a data set or a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from fedpns_ray.core.devices import Devices, Resources
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.errors import InputError, Shown

Vector = NDArray[np.float32]


class Probe(Protocol):
    """What the server may ask of nodes before it draws. Most methods never ask; what is asked is counted and timed."""

    def __call__(self, node_ids: Sequence[int], samples: int | None = None) -> NDArray[np.float64]:
        """The loss of the current model on each node's own data, or on `samples` of it, redrawn each round."""
        ...

    def resources(self) -> Resources:
        """What every node would need this round. Only with a device model."""
        ...


class CheckLoss(Protocol):
    """The loss of a candidate model on check samples, the same samples for the whole round."""

    def __call__(self, weights: Vector, *, samples: int, first: bool) -> float: ...


@dataclass(frozen=True)
class Nodes:
    """What the server knows about the nodes before the first round."""

    sizes: NDArray[np.int64]
    """D_i, samples held by each node."""
    iid: NDArray[np.bool_]
    """Which nodes hold i.i.d. data. Only experiments such as Figure 1 may look; a method may not."""
    per_round: int
    """|S_t| = c |K|."""
    devices: Devices | None = None
    """The device model, if it is on."""
    parameters: int = 0
    """The length of the model's flat vector."""

    @property
    def count(self) -> int:
        return len(self.sizes)

    def needed_devices(self, part: str) -> Devices:
        """The device model, for a part that requires one."""
        if self.devices is None:
            raise InputError("devices", Shown("off"), f"{part} needs a device model, such as devices log-normal")
        return self.devices


@dataclass(frozen=True)
class Updates:
    """What the trained nodes sent back, in the order of node ids."""

    node_ids: tuple[int, ...]
    deltas: NDArray[np.float32]
    """One row per node: delta_i = w_i - w."""
    losses: NDArray[np.float64]
    """Mean loss of each node over its local steps."""
    sizes: NDArray[np.int64]
    steps: NDArray[np.int64]
    """tau_i, local steps taken."""
    lr: float
    shares: NDArray[np.float64] | None = None
    """The weight of each update in the sum, if the selection sets it; otherwise 1/m."""
    upload: NDArray[np.float64] | None = None
    """With a device model: the seconds that each update takes to send."""
    seconds: NDArray[np.float64] | None = None
    """With a device model: the seconds from the start of the round until each update has arrived."""
    buffers: int = 0
    """How many numbers at the end of each row are averaged buffers (`buffers: average`), not parameters."""

    def __len__(self) -> int:
        return len(self.node_ids)

    def subset(self, positions: Sequence[int]) -> Updates:
        """The updates at these positions only."""
        at = list(positions)
        columns = ("deltas", "losses", "sizes", "steps", "shares", "upload", "seconds")
        there = {key: column[at] for key in columns if (column := getattr(self, key)) is not None}
        return replace(self, node_ids=tuple(self.node_ids[k] for k in at), **there)

    @property
    def of_parameters(self) -> NDArray[np.float32]:
        """The deltas without buffers: what stands in for gradients, which buffers do not have."""
        return self.deltas[:, : -self.buffers] if self.buffers else self.deltas

    def norms(self) -> NDArray[np.float64]:
        """||delta_i|| of every node, summed in float64 and without BLAS, so that threads cannot change a bit."""
        return np.sqrt(np.einsum("ik,ik->i", self.of_parameters, self.of_parameters, dtype=np.float64))


@dataclass(frozen=True)
class Outcome:
    """What an aggregation made of a round's updates."""

    weights: Vector
    aggregated: tuple[int, ...] = ()
    labelled: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    """What else belongs in the record of the round; see `Part.quantities`."""
    step: Vector | None = None
    """w_t - w_{t-1}: the global update as it was really taken, after the server optimiser; filled in by the loop."""


SAVED = (np.ndarray, np.generic, bool, int, float, str)
"""The types of state that a checkpoint holds."""


class Part(BaseModel):
    """A named piece of science with parameters and, where it learns, a state."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True, allow_inf_nan=False)

    name: ClassVar[str]
    qualified: ClassVar[bool] = False
    """Whether its parameters are always written with the kind of the part, as in `server.lr`."""
    quantities: ClassVar[tuple[Quantity, ...]] = ()
    """What the part adds to the record of a round, for tables and plots."""

    def begin(self, nodes: Nodes) -> None:
        """Called once, before round 1."""

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """The state as arrays, for a checkpoint: every private attribute that is an array, a number or a string."""
        return {
            name.removeprefix("_"): np.asarray(value)
            for name, value in (self.__pydantic_private__ or {}).items()
            if isinstance(value, SAVED)
        }

    def load_state_dict(self, state: dict[str, NDArray[Any]]) -> None:
        """The inverse of `state_dict`."""
        for key, value in state.items():
            before = (self.__pydantic_private__ or {}).get(f"_{key}")
            is_array = isinstance(before, np.ndarray) or value.ndim > 0
            setattr(self, f"_{key}", value.copy() if is_array else value.item())

    def refuse_unsaved(self) -> None:
        """Raise an InputError for state that a checkpoint would lose: a resumed run would silently differ."""
        if type(self).state_dict is not Part.state_dict:
            return
        for name, value in (self.__pydantic_private__ or {}).items():
            if isinstance(value, (list, dict, set, bytearray)):
                raise InputError(
                    type(self).__name__,
                    problem=f"its attribute {name} is a {type(value).__name__}, which a checkpoint does not hold",
                    hint="keep state in numpy arrays, numbers and strings, or write state_dict and load_state_dict",
                )


class Selection(Part):
    """Who trains, whose update is sent, and what is learned from the round.

    Only `learn` and `hear` change the state, so that a round can be drawn again after a fault.
    """

    reports: ClassVar[int] = 0
    """Numbers that every trained node reports, for the server to choose by, before any update is sent."""
    awaits_test: ClassVar[bool] = False
    """Whether `hear` must be called before the next draw. Rounds then wait for the test of the last model."""
    downloads: ClassVar[int] = 1
    """Model-sized vectors sent to every drawn node."""

    def trains(self, per_round: int) -> int:
        """The most nodes that train in a round: |S_t| unless a method trains more than it aggregates."""
        return per_round

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        """The nodes that train this round. `probe(ids)` asks nodes for the loss of the current model on their data."""
        raise NotImplementedError

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        """After training: the updates sent to the server, with their shares. Most methods send all of them, equally."""
        return updates

    def learn(self, updates: Updates, outcome: Outcome) -> None:
        """Called after aggregation. `updates` are those of every node that trained and returned."""

    def hear(self, accuracy: float, loss: float) -> None:
        """Takes the test of the last round's model; called before the next draw only if the selection `awaits_test`.

        In a regression, where nothing is right or wrong, the accuracy is NaN.
        """

    def notes(self) -> dict[str, Any]:
        """What the selection adds to the record of the round; see `Part.quantities`."""
        return {}


class Objective(Part):
    """What a node minimises: the loss on its data, and what a method adds to it."""

    def correct(self, gradient: Any, weights: Any, anchor: Any) -> None:
        """Add the gradient of the added term, in place.

        The tensors are flat vectors of one node, or matrices with one row per node; `anchor` is the global model w.
        """

    def epochs(self, most: int, rng: np.random.Generator) -> int:
        """Local epochs of one node in one round, at least 1 and at most E; `rng` is its own for this round."""
        return most


class Aggregation(Part):
    """How updates become a model. `combine` is called once per round and may change the state."""

    def combine(self, weights: Vector, updates: Updates, check_loss: CheckLoss) -> Outcome:
        raise NotImplementedError


class ServerOptimizer(Part):
    """How the aggregated step moves the model. Here it moves it to the aggregated model itself, as FedAvg does."""

    qualified: ClassVar[bool] = True

    def move(self, weights: Vector, aggregated: Vector) -> Vector:
        """The next model, from the last one and the one that the updates were aggregated into.

        Called once per round, unless nothing was aggregated; may change the state, which `begin` must set up.
        """
        return aggregated


class Strategy(NamedTuple):
    """Four choices; most published methods change only one of them."""

    selection: Selection
    objective: Objective
    aggregation: Aggregation
    server: ServerOptimizer

    def begin(self, nodes: Nodes) -> None:
        for part in self:
            part.begin(nodes)
            part.refuse_unsaved()

    def state_dict(self) -> dict[str, NDArray[Any]]:
        return {
            f"{kind}.{key}": value for kind, part in self._asdict().items() for key, value in part.state_dict().items()
        }

    def load_state_dict(self, state: dict[str, NDArray[Any]]) -> None:
        for kind, part in self._asdict().items():
            mine = {key.split(".", 1)[1]: value for key, value in state.items() if key.startswith(f"{kind}.")}
            part.load_state_dict(mine)


def average(weights: Vector, deltas: NDArray[np.float32], shares: NDArray[np.float64] | None = None) -> Vector:
    """(5): w + mean of delta_i, or the sum of shares_i delta_i; in float64 in the order of the rows, without BLAS."""
    if shares is None:
        return (weights + deltas.mean(axis=0, dtype=np.float64)).astype(np.float32)
    return (weights + np.einsum("i,ik->k", shares, deltas, dtype=np.float64)).astype(np.float32)
