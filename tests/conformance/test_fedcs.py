"""FedCS: Algorithm 3 of Nishio and Yonetani 2019, by hand and by oracle."""

import numpy as np
import pytest

from fedpns_ray import InputError
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.fedcs import DeadlineSelection, greedy
from tests.strategies.made import Asked, devices, nodes

DIFFERENCES = (
    "The times to distribute the model, to select and to aggregate (T_CS, T_S^d, T_Agg) are taken as 0.",
    "Of several nodes that add the same time, the one with the lowest id is taken; the paper leaves it open.",
    "Uploads are planned one after another, as in the paper, and happen in parallel in simulated time.",
)


def begun(choices=3, per_round=2, model=None, **parameters):
    model = model or devices([100, 50, 20], [1000] * 3)
    selection = DeadlineSelection(choices=choices, **parameters)
    selection.begin(nodes(len(model.speed), per_round, model=model))
    return selection


def test_greedy_by_hand():
    """Training takes 5, 1 and 2 s, an upload 1 s. First node 1 (adds 2), then 2 (trained meanwhile: adds 1), then 0,
    which adds 1 + (5 - 3) = 3: the round would take 6 s."""
    train, upload = np.array([5.0, 1, 2]), np.ones(3)
    assert greedy(train, upload, 6.1) == [1, 2, 0]
    assert greedy(train, upload, 6.0) == [1, 2]  # strictly before the deadline
    assert greedy(train, upload, 3.0) == [1]
    assert greedy(train, upload, 2.0) == []


def test_greedy_passes_over_a_node_that_does_not_fit():
    """Adds 1, then 1.5; node 1 would add 4, which is too long. (Uploads of 1, 4 and 1.5 s, nothing to train.)"""
    assert greedy(np.array([0.0, 0, 0]), np.array([1.0, 4, 1.5]), 3.0) == [0, 2]
    assert greedy(np.array([1.0]), np.array([1.0]), 5.0) == [0]
    assert greedy(np.full(4, 1.0), np.full(4, 1.0), 4.5) == [0, 1, 2]  # equal nodes: the lower id


def test_the_asked_are_planned_for():
    model = devices([100, 50, 20, 10], [1000] * 4)  # 1, 2, 5, 10 s of training; 1 s an upload
    selection = begun(4, model=model, deadline=8)
    assert selection.draw(stream(1, "draw", 1), Asked(resources=model.resources(1))) == [0, 1, 2]
    some = begun(2, model=model, deadline=100)
    drawn = [tuple(some.draw(stream(1, "draw", t), Asked(resources=model.resources(t)))) for t in range(40)]
    assert {len(set(d)) for d in drawn} == {2} and len(set(drawn)) > 3
    equal = devices([100] * 4, [1000] * 4)  # 1 s each: before 3.5 s, two uploads fit after the first training
    tied = begun(4, model=equal, deadline=3.5)
    assert {tuple(tied.draw(stream(1, "draw", t), Asked(resources=equal.resources(t)))) for t in range(20)} == {(0, 1)}
    assert some.trains(7) == 2 and not some.covers


def test_the_default_deadline_and_impossible_ones():
    """The median node trains 2 s, and two uploads take 1 s each: 4 s."""
    assert begun()._deadline == 2 + 2 * 1 and begun(deadline=7)._deadline == 7 and DeadlineSelection().choices == 20
    assert DeadlineSelection().deadline == 0.0
    assert begun(model=devices([100, 50, 20], [500] * 3))._deadline == 2 + 2 * 2
    for wrong in (1.5, 2.0):
        with pytest.raises(InputError, match=f"deadline: {wrong} is not allowed; the fastest node needs 2 s"):
            begun(deadline=wrong)
    with pytest.raises(InputError, match="devices: off is not allowed; deadline needs a device model"):
        DeadlineSelection().begin(nodes(30, 2))
    with pytest.raises(InputError, match="choices: 4 is not allowed; there are 3 nodes"):
        begun(4)


def planned(train, upload, deadline):
    """Algorithm 3, with T_inc computed from the whole plan each time: Theta of a sequence, by (2) to (4)."""

    def length(order):
        theta = 0.0
        for node in order:
            theta += upload[node] + max(0.0, train[node] - theta)
        return theta

    kept, left = [], list(range(len(train)))
    while left:
        best = min(left, key=lambda node: (round(length([*kept, node]) - length(kept), 9), node))
        left.remove(best)
        if length([*kept, best]) < deadline:
            kept.append(best)
    return kept


def test_against_a_plain_loop():
    rng = np.random.default_rng(12)
    for _ in range(300):
        n = int(rng.integers(1, 8))
        train, upload = rng.exponential(3, n), rng.exponential(1, n)
        deadline = float(rng.uniform(0.5, 12))
        assert greedy(train, upload, deadline) == planned(train.tolist(), upload.tolist(), deadline)
