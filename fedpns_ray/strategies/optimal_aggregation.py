"""Algorithm 1, Optimal Aggregation: exclude the updates that work against the others.

The expectation E_{i~S} <gbar, g_i> of Lemma 1 equals ||s||^2 / |S|^2 with s = sum of g_i over S. Without node k it is
(||s||^2 - 2 <s, g_k> + ||g_k||^2) / (|S| - 1)^2. So one Gram matrix of the updates, one pass over the parameters,
decides: the first iteration in O(m^2), every other one in O(m).

Any positive scale common to all nodes gives the same decisions, so the updates delta_i stand in for the gradients. The
sums are float64; a decision that depends on their rounding (ties, duplicates) is repeated in exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from fedpns_ray.core.gram import exact_gram_matrix, gram_matrix
from fedpns_ray.core.interfaces import Aggregation, CheckLoss, Outcome, Updates, Vector, average
from fedpns_ray.core.quantity import Quantity

EXPECTATION = Quantity("expectation", "expectation of Lemma 1")
EXPECTATION_AFTER = Quantity("expectation_after", "expectation of Lemma 1, after exclusion")

Matrix = NDArray[Any]
"""A Gram matrix: of float64, or exact, of whole numbers."""
Row = NDArray[Any]
"""A number for each node of a set, of the same kind."""

ROUNDING = 2.0**-36
"""A generous bound on the rounding error of an expectation, relative to (sum of ||g_i||)^2."""


class Expectations(NamedTuple):
    """The expectation of Lemma 1 with all nodes of a set, and without each of them in turn."""

    current: Any
    without: NDArray[Any]
    rounding: float
    """Differences up to this size may be rounding."""


def check_expectation(rows: Row, squares: Row, kind: Literal["mean", "sum"] = "mean") -> Expectations:
    """Check Expectation (lines 18-21) for a set of nodes: <g_k, s> and ||g_k||^2 of each of them.

    `sum` is the released code's variant: |S| ||gbar||^2, rounded to 3 decimals.
    """
    size = len(rows)
    whole = rows.sum()
    without = whole - 2 * rows + squares
    if kind == "sum":
        return Expectations(np.round(whole / size, 3), np.round(without / (size - 1), 3), 0)
    if rows.dtype == object:
        exact = np.array([Fraction(number, (size - 1) ** 2) for number in without], dtype=object)
        return Expectations(Fraction(whole, size**2), exact, 0)
    rounding = ROUNDING * float(np.sqrt(squares).sum() / (size - 1)) ** 2
    return Expectations(whole / size**2, without / (size - 1) ** 2, rounding)


class Decision(NamedTuple):
    """Positions (not node ids), and the expectation before and after."""

    kept: list[int]
    labelled: list[int]
    excluded: list[int]
    before: float
    after: float


def optimal_subset(
    gram: Matrix,
    check_loss: Callable[[list[int]], float],
    v: float = 0.7,
    kind: Literal["mean", "sum"] = "mean",
    exact: Callable[[], Matrix] | None = None,
) -> Decision:
    """Algorithm 1 over the nodes 0 .. m-1; `check_loss(kept)` is the loss of the model made of those nodes.

    While more than v m nodes remain (for v > 1: more than v), take the node whose removal gives the highest
    expectation; stop unless that is strictly higher than with it. The node is then labelled. Exclude it unless
    the loss without it is higher; that ends the search too. `exact` computes the Gram matrix that settles near-ties.
    """
    m = len(gram)
    floor = v if v > 1 else v * m
    kept, labelled, excluded = list(range(m)), [], []
    judged, rows = gram, gram.sum(axis=1)
    loss: float | None = None
    while len(kept) > max(1.0, floor + 1e-9):
        current, without, rounding = check_expectation(rows, np.diag(judged)[kept], kind)
        best = without.max()
        contenders = np.flatnonzero(without >= best - rounding)
        if exact and rounding and (abs(best - current) <= rounding or len(contenders) > 1):
            judged, exact = exact(), None
            rows = judged[np.ix_(kept, kept)].sum(axis=1)
            continue
        if not best > current:
            break
        place = int(contenders[0])  # a tie goes to the lowest node id
        worst, remaining = kept[place], kept[:place] + kept[place + 1 :]
        labelled.append(worst)
        loss = check_loss(kept) if loss is None else loss
        loss_without = check_loss(remaining)
        if loss_without > loss:
            break
        kept, loss = remaining, loss_without
        excluded.append(worst)
        if kind == "mean":
            rows = np.delete(rows, place) - judged[kept, worst]
        else:  # rounded expectations: there the last digit may decide
            rows = judged[np.ix_(kept, kept)].sum(axis=1)
    return Decision(kept, labelled, excluded, _expectation(gram), _expectation(gram[np.ix_(kept, kept)]))


def _expectation(gram: Matrix) -> float:
    return float(gram.sum()) / len(gram) ** 2


class OptimalAggregation(Aggregation):
    """Algorithm 1: the mean over S*, the updates that raise the expected decrease of the loss (Lemma 1).

    Where a selection gives the updates shares, those of S* are scaled up so that they sum to what all of them did.
    """

    name = "optimal"
    quantities = (EXPECTATION, EXPECTATION_AFTER)
    v: float = Field(0.7, gt=0)
    """Floor: a fraction of the nodes that returned; above 1, a number of nodes (the released code: 8)."""
    expectation: Literal["mean", "sum"] = "mean"
    """Weights of the expectation: 1/|S| (the paper), or 1 and rounded to 3 decimals (the released code)."""
    check_samples: PositiveInt = 128
    """B-bar, test samples that Check Loss uses in a round (the released code: 2000)."""
    check_draw: Literal["random", "first"] = "random"
    """Which test samples: drawn each round (the paper), or the first ones (the released code)."""

    def combine(self, weights: Vector, updates: Updates, check_loss: CheckLoss) -> Outcome:
        gram = gram_matrix(updates.of_parameters)
        if self.expectation == "sum":  # rounding makes the scale matter: g_i = -delta_i / (tau eta)
            scale = 1 / (updates.steps * updates.lr)
            gram = gram * np.outer(scale, scale)

        def merged(kept: list[int]) -> Vector:
            if updates.shares is None:
                return average(weights, updates.deltas[kept])
            shares = updates.shares[kept]
            return average(weights, updates.deltas[kept], shares * (updates.shares.sum() / shares.sum()))

        def loss_of(kept: list[int]) -> float:
            return check_loss(merged(kept), samples=self.check_samples, first=self.check_draw == "first")

        kept, labelled, excluded, before, after = optimal_subset(
            gram, loss_of, self.v, self.expectation, exact=lambda: exact_gram_matrix(updates.of_parameters)
        )
        ids = updates.node_ids
        return Outcome(
            merged(kept),
            aggregated=tuple(ids[k] for k in kept),
            labelled=tuple(ids[k] for k in labelled),
            excluded=tuple(ids[k] for k in excluded),
            notes={EXPECTATION.key: before, EXPECTATION_AFTER.key: after},
        )
