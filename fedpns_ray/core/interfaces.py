"""What a strategy is made of: a selection, an objective, an aggregation and a server optimiser.

A part is a pydantic model: its fields are its parameters (typed, bounded, documented; the command line and the
studies read them from here), its private attributes are its state. Parts see arrays and node ids, never a
machine, a data set or a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from fedpns_ray.core.devices import Devices, Resources
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.core.updates import NOTHING, Outcome, Rows, Updates, Vector, average
from fedpns_ray.errors import InputError, Shown

__all__ = [
    "NOTHING", "Aggregation", "CheckLoss", "Claim", "Nodes", "Objective", "Outcome", "Part", "Probe", "Rows",
    "Selection", "ServerOptimizer", "Strategy", "Timetable", "Updates", "Vector", "average",
]  # fmt: skip

Claim = Literal["", "nodes", "samples"]
"""What a selection claims to be unbiased for."""


class Probe(Protocol):
    """What the server may ask of nodes before it draws. Most methods never ask; what is asked is counted and timed."""

    def __call__(self, node_ids: Sequence[int], samples: int | None = None) -> NDArray[np.float64]:
        """The loss of the current model on each node's own data, or on `samples` of it, redrawn each round."""
        ...

    def resources(self) -> Resources:
        """What every node would need this round. Only with a device model."""
        ...

    @property
    def available(self) -> NDArray[np.int64]:
        """The nodes that can be drawn this round, in the order of their ids."""
        ...

    def next_available(self) -> NDArray[np.int64]:
        """The first round, from this one on, in which each node can be drawn."""
        ...


class Timetable(Protocol):
    """When nodes are available; see `fedpns_ray.core.availability`."""

    def next_rounds(self, round: int) -> NDArray[np.int64]:
        """For every node, the first round from this one on in which it is available."""
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
    last_layer: tuple[int, int] | None = None
    """Outputs and inputs of the linear layer that the model ends in, if it does: weights, row by row, then biases."""
    timetable: Timetable | None = None
    """When nodes can be drawn; None if they always can."""
    seed: int = 0
    """That of the experiment: it names the random streams of a part that has no other access to one."""

    @property
    def count(self) -> int:
        return len(self.sizes)

    def needed_devices(self, part: str) -> Devices:
        """The device model, for a part that requires one."""
        if self.devices is None:
            raise InputError("devices", Shown("off"), f"{part} needs a device model, such as devices log-normal")
        return self.devices


SAVED = (np.ndarray, np.generic, bool, int, float, str)
"""The types of state that a checkpoint holds."""


class Part(BaseModel):
    """A named piece of science with parameters and, where it learns, a state."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: ClassVar[str]
    qualified: ClassVar[bool] = False
    """Whether its parameters are always written with the kind of the part, as in `server.lr`."""
    quantities: ClassVar[tuple[Quantity, ...]] = ()
    """What the part adds to the record of a round, for tables and plots."""
    required: ClassVar[tuple[str, ...]] = ()
    """The methods without which a part of this kind is none."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a constructor that cannot be called: parts are made from settings, by the names of their fields."""
        super().__init_subclass__(**options)
        own = vars(cls).get("__init__")
        if own and not any(given.kind is given.VAR_KEYWORD for given in signature(own).parameters.values()):
            raise TypeError("a part needs no __init__: its fields are its parameters, and begin() prepares its state")
        quantities = vars(cls).get("quantities", ())
        if not isinstance(quantities, (tuple, list)) or not all(isinstance(one, Quantity) for one in quantities):
            raise TypeError(f"the quantities of {cls.__name__} must be of the type fedpns_ray.core.quantity.Quantity")

    @classmethod
    def missing(cls) -> str:
        """The first required method that the part does not have; empty if it has all of them."""
        base = next(one for one in cls.__mro__ if "required" in vars(one))
        return next((name for name in cls.required if getattr(cls, name) is getattr(base, name)), "")

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

    Only `appraise`, `learn` and `hear` change the state, so that a round can be drawn again after a fault.
    """

    reports: ClassVar[int] = 0
    """Numbers that every trained node reports, for the server to choose by, before any update is sent."""
    awaits_test: ClassVar[bool] = False
    """Whether `hear` must be called before the next draw. Rounds then wait for the test of the last model."""
    downloads: ClassVar[int] = 1
    """Model-sized vectors sent to every drawn node."""
    unbiased: ClassVar[Claim] = ""
    """What the sent updates sum to, by their shares, in expectation: the mean over all candidates, each node counting
    alike or by its samples; empty if neither is claimed. `fedpns conformance` checks the claim."""
    covers: ClassVar[bool] = True
    """Whether every node can be drawn sooner or later."""
    required: ClassVar[tuple[str, ...]] = ("draw",)

    def trains(self, per_round: int) -> int:
        """The most nodes that train in a round: |S_t| unless a method trains more than it aggregates."""
        return per_round

    def draw(self, rng: np.random.Generator, probe: Probe) -> Sequence[int]:
        """The nodes that train this round. `probe(ids)` asks nodes for the loss of the current model on their data."""
        raise NotImplementedError

    def sift(self, rng: np.random.Generator, updates: Updates) -> Updates:
        """After training: the updates sent to the server, with their shares. Most methods send all of them, equally."""
        return updates

    def gathers(self) -> bool:
        """Whether every node that trains this round sends its update, for `sift` to choose from: all are counted."""
        return False

    def appraise(self, rng: np.random.Generator, weights: Vector, updates: Updates, check_loss: CheckLoss) -> None:
        """Called after aggregation and before `learn`, with the model that the sent updates started from."""

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
    """What a node minimises: the loss on its data, and what a method adds to it.

    Nodes may keep a vector, as long as the parameters, from one of their rounds to the next: their state, zero at
    first. It travels with the work and is part of the checkpoint. `shift` and `next_states` are called where nodes
    train, on an objective that has no private state; `broadcast` and `learn` on the server.
    """

    keeps_states: ClassVar[bool] = False
    """Whether nodes keep a state."""
    sent_along: ClassVar[int] = 0
    """Vectors as long as the parameters that travel with the model to each drawn node, and back with its update."""
    needs_plain_steps: ClassVar[bool] = False
    """Whether nodes must step by plain SGD: without momentum, so that lr times the sum of gradients is the update."""

    draws_samples: ClassVar[bool] = False
    """Whether mini-batches are drawn by `probabilities`, instead of being cut from reshuffled epochs."""

    def correct(self, gradient: Any, weights: Any, anchor: Any) -> None:
        """Add the gradient of the added term, in place.

        The tensors are flat vectors of one node, or matrices with one row per node; `anchor` is the global model w.
        """

    def epochs(self, most: int, rng: np.random.Generator) -> int:
        """Local epochs of one node in one round, at least 1 and at most E; `rng` is its own for this round."""
        return most

    def probabilities(self, norms: NDArray[np.float64]) -> NDArray[np.float64]:
        """If it `draws_samples`: the probability of each of a node's samples, from the norms of their gradients."""
        raise NotImplementedError

    def broadcast(self) -> Vector:
        """What the server sends to every drawn node beside the model, if nodes keep states; here nothing."""
        return NOTHING

    def shift(self, states: Rows, shared: Vector) -> Rows | None:
        """A vector per node to add to every gradient of the round; `shared` is what was broadcast."""
        return None

    def next_states(self, states: Rows, shared: Vector, updates: Updates) -> Rows:
        """What each node keeps after training; `states` is what it had, a row per update."""
        raise NotImplementedError

    def learn(self, before: Rows, after: Rows) -> None:
        """Called after aggregation with the states of the nodes that sent their updates, a row each.

        A node that trained and did not send keeps the state that it had.
        """


class Aggregation(Part):
    """How updates become a model. `combine` is called once per round and may change the state."""

    over_the_air: ClassVar[bool] = False
    """Whether nodes send their updates at once, as amplitudes of a radio signal: neither bytes nor time are counted."""
    required: ClassVar[tuple[str, ...]] = ("combine",)

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
