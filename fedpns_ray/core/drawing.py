"""The draw of a round: what a selection may return, and who of the drawn nodes does not return."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedpns_ray.core.costs import Ledger
from fedpns_ray.core.interfaces import Selection
from fedpns_ray.core.streams import stream
from fedpns_ray.core.user_code import refused

if TYPE_CHECKING:
    from fedpns_ray.experiment import Experiment


class Drawn(NamedTuple):
    """The draw of a round."""

    nodes: list[int]
    returning: list[int]
    """The drawn nodes that do not drop out."""
    ledger: Ledger
    seconds: float


def possible_draw(selection: Selection, drawn: Any, count: int) -> list[int]:
    """The drawn nodes in the order of their ids; refused if they are not distinct nodes of this population."""
    try:
        nodes = sorted(index(node) for node in drawn)
    except TypeError:
        raise refused(selection.draw, f"the draw returned {drawn!r:.100}; it must return node ids") from None
    following = [*nodes[1:], count][: len(nodes)]
    wrong = [node for node, after in zip(nodes, following, strict=True) if not 0 <= node < min(after, count)]
    if wrong:
        problem = "twice" if 0 <= wrong[0] < count else "which does not exist"
        raise refused(
            selection.draw,
            f"the draw returned node {wrong[0]}, {problem}; it must return distinct nodes between 0 and {count - 1}",
        )
    return nodes


def reachable(nodes: list[int], ledger: Ledger) -> list[int]:
    """The drawn nodes that are available: whatever a selection knows of availability, nobody else can train."""
    drawn = np.array(nodes, dtype=np.int64)
    return drawn[ledger.reaches(drawn)].tolist()


def drops_out(experiment: Experiment, round: int, node: int) -> bool:
    """Whether a node drops out of a round. Simulated: the strategy only sees which nodes returned."""
    q = experiment.drop_probability
    return q > 0 and stream(experiment.seed, "drop out", round, node).random() < q
