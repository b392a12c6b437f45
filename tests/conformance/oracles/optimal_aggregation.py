"""Algorithm 1, transcribed line by line from the paper over Python's exact fractions: slow, and beyond doubt.

Deviations from the printed lines are those that `Algorithm 1, settled` names: Check Loss keeps the node when the loss
without it is higher, the floor is a fraction of the drawn nodes, the search stops unless strictly higher, a tie goes to
the lowest node id.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

Exact = list[Fraction]


def expectation(gradients: list[Exact], members: list[int]) -> Fraction:
    """E over S with weight 1/|S| of <gbar, g_i>, parameter by parameter."""
    size = len(members)
    n = len(gradients[0])
    mean = [sum((gradients[i][k] for i in members), Fraction(0)) / size for k in range(n)]
    inner = [sum((mean[k] * gradients[i][k] for k in range(n)), Fraction(0)) for i in members]
    return sum(inner, Fraction(0)) / size


def optimal_aggregation(
    deltas: list[list[float]], check_loss: Callable[[list[int]], float], v: float
) -> tuple[list[int], list[int], list[int]]:
    gradients = [[-Fraction(x) for x in row] for row in deltas]
    members = list(range(len(gradients)))
    labelled: list[int] = []
    excluded: list[int] = []
    highest = expectation(gradients, members)  # line 3
    drawn = len(members)
    while len(members) > 1 and len(members) > Fraction(str(v)) * drawn:  # line 4
        temp = {}
        for i in members:  # Check Expectation
            temp[i] = expectation(gradients, [j for j in members if j != i])
        best = max(temp.values())
        if not best > highest:  # line 6
            break
        key = min(i for i in members if temp[i] == best)  # line 9
        labelled.append(key)
        without = [j for j in members if j != key]
        if check_loss(without) > check_loss(members):  # Check Loss, as the text has it
            break
        members = without  # line 14
        excluded.append(key)
        highest = best  # line 15
    return members, labelled, excluded
