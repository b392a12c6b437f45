"""Record: one round as rounds.jsonl holds it. The keys are spelled here and nowhere else."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

from fedpns_ray.core.quantity import Quantity
from fedpns_ray.core.run import Round

T = TypeVar("T")


class Key(Generic[T]):
    """An entry of a record or a summary: on the class it is the key; on an object it is the value, or None."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = name

    @overload
    def __get__(self, record: None, owner: type) -> str: ...

    @overload
    def __get__(self, record: dict[str, Any], owner: type) -> T: ...

    def __get__(self, record: dict[str, Any] | None, owner: type) -> str | T:
        return self._key if record is None else record.get(self._key)  # type: ignore[return-value]

    def __set__(self, record: dict[str, Any], value: T) -> None:
        record[self._key] = value


class Record(dict[str, Any]):
    """A round as JSON: `record.test_accuracy` is the value, `Record.test_accuracy` the key.

    In addition to these keys there are those that a run's parts declare (`Part.quantities`).
    """

    round = Key[int]()
    test_accuracy = Key["float | None"]()
    """Accuracy of the round's model; None for rounds that are not tested, and in a regression."""
    test_loss = Key["float | None"]()
    train_loss = Key["float | None"]()
    """The mean over nodes of their mean loss while training; None if no node returned."""
    lr = Key[float]()
    drawn = Key["list[int]"]()
    returned = Key["list[int] | None"]()
    """Nodes whose update came back; recorded where that need not be all of the drawn nodes."""
    labelled = Key["list[int]"]()
    excluded = Key["list[int]"]()
    aggregated = Key["list[int]"]()
    non_finite_updates = Key["list[int] | None"]()
    """Nodes whose update was left out because it was not finite."""
    clipped = Key["list[int] | None"]()
    """Nodes whose update was scaled down; None where updates are not clipped."""
    gradient_norms = Key["list[float] | None"]()
    gradient_norm_of_mean = Key["float | None"]()
    gradient_norm_iid = Key["float | None"]()
    gradient_norm_other = Key["float | None"]()
    weight_divergence = Key["float | None"]()
    bytes_up = Key["int | None"]()
    """None in records from before costs were counted."""
    bytes_down = Key["int | None"]()
    simulated_seconds = Key["float | None"]()
    """None without a device model."""
    losses_asked = Key["int | None"]()
    """How many losses nodes were asked for before the draw; recorded where that is not 0."""
    seconds = Key[float]()
    seconds_by_phase = Key["dict[str, float]"]()
    diverged = Key["str | None"]()
    """Why the run diverged in this round, which is then its last."""
    faults = Key["list[str] | None"]()
    """What went wrong and was mended before this round was recorded, such as an actor that was lost."""
    non_finite = Key["list[str] | None"]()
    """Keys of this record whose value was not finite and is therefore null."""
    chain = Key[str]()
    """In rounds.jsonl only: vouches for this line and all before it (`records.lines`)."""


QUANTITIES = (
    Quantity(Record.test_accuracy, "test accuracy", "%", 100.0, "higher"),
    Quantity(Record.test_loss, "test loss", better="lower"),
    Quantity(Record.train_loss, "training loss", better="lower"),
    Quantity(Record.gradient_norm_iid, "gradient norm, i.i.d. nodes"),
    Quantity(Record.gradient_norm_other, "gradient norm, other nodes"),
    Quantity(Record.gradient_norm_of_mean, "norm of the mean gradient"),
    Quantity(Record.gradient_norms, "gradient norms", per="update"),
    Quantity(Record.weight_divergence, "weight divergence ‖w - v‖", better="lower"),
)
"""What every run measures, whatever its parts."""

CORE = {quantity.key: quantity for quantity in QUANTITIES}

COSTS = (
    Quantity(Record.bytes_up, "MB up", "MB", 1e-6, "lower"),
    Quantity(Record.bytes_down, "MB down", "MB", 1e-6, "lower"),
    Quantity(Record.simulated_seconds, "simulated s", "s", 1.0, "lower"),
)
"""What a round costs, summed over a run; simulated seconds only with a device model."""

FATES = (Record.drawn, Record.labelled, Record.excluded)
"""What may happen to a node in a round, in the paper's words."""


def record_of(round: Round, drops_out: bool) -> Record:
    """A round's record. It names the nodes that returned if that need not be all: `drops_out`, or broken updates."""
    found: dict[str, Any] = {
        Record.round: round.number,
        Record.test_accuracy: round.accuracy,
        Record.test_loss: round.loss,
        Record.train_loss: round.train_loss,
        Record.lr: round.lr,
        Record.drawn: round.drawn,
        **({Record.returned: round.returned} if drops_out or round.non_finite else {}),
        Record.labelled: round.labelled,
        Record.excluded: round.excluded,
        Record.aggregated: round.aggregated,
        **({Record.non_finite_updates: round.non_finite} if round.non_finite else {}),
        **({Record.clipped: round.clipped} if round.clipped is not None else {}),
        **round.notes,
        **_gradients(round),
        **({Record.weight_divergence: round.weight_divergence} if round.weight_divergence is not None else {}),
        **_costs(round),
        Record.seconds: sum(round.seconds.values()),
        Record.seconds_by_phase: round.seconds,
        **({Record.diverged: round.diverged} if round.diverged else {}),
    }
    return Record(found)


def _gradients(round: Round) -> dict[str, Any]:
    g = round.gradients
    if g is None:
        return {}
    return {
        Record.gradient_norms: g.norms,
        Record.gradient_norm_of_mean: g.norm_of_mean,
        Record.gradient_norm_iid: g.iid,
        Record.gradient_norm_other: g.other,
    }


def _costs(round: Round) -> dict[str, Any]:
    costs = round.costs
    found: dict[str, Any] = {Record.bytes_up: costs.bytes_up, Record.bytes_down: costs.bytes_down}
    if costs.simulated_seconds is not None:
        found[Record.simulated_seconds] = costs.simulated_seconds
    if costs.losses_asked:
        found[Record.losses_asked] = costs.losses_asked
    return found
