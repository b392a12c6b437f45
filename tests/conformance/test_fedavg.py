"""FedAvg with partial participation: equation (5) of the FedPNS paper, and the draws that other methods build on."""

import itertools

import numpy as np
import pytest

from fedpns_ray import InputError
from fedpns_ray.conformance.enumeration import distribution
from fedpns_ray.core.interfaces import Nodes
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.fedavg import (
    HalfSelection,
    MeanAggregation,
    NoServer,
    PlainObjective,
    RandomSelection,
    by_probability,
    uniform,
)
from tests.strategies.made import updates

DIFFERENCES = (
    "Equation (5) is the plain mean over S_t; McMahan et al. 2017 weigh by data size and let nodes that were not drawn "
    "stand for the old model (`fedavg-full`). Where nodes hold equally much data, as in the FedPNS paper, both means "
    "are the same.",
)


def nodes(count=50, iid=25, per_round=10):
    return Nodes(np.full(count, 200), np.arange(count) < iid, per_round)


def begun(kind, **sizes):
    selection = kind()
    selection.begin(nodes(**sizes))
    return selection


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_the_mean():
    """(5): w + ((1, 2) + (3, 4)) / 2 = (1, 1) + (2, 3), summed in float64; with shares 1/4 and 3/4: (2.5, 3.5) more."""
    found = updates([[1, 2], [3, 4]], ids=(7, 8))
    outcome = MeanAggregation().combine(np.ones(2, dtype=np.float32), found, None)
    assert outcome.weights.tolist() == [3, 4] and outcome.aggregated == (7, 8) and outcome.weights.dtype == np.float32
    shared = updates([[1, 2], [3, 4]], shares=np.array([0.25, 0.75]))
    assert MeanAggregation().combine(np.ones(2, dtype=np.float32), shared, None).weights.tolist() == [3.5, 4.5]
    assert NoServer().move(np.zeros(2), found.deltas[0]).tolist() == [1, 2]
    assert PlainObjective().epochs(7, None) == 7 and PlainObjective().shift(None, None) is None


def test_the_mean_is_that_of_a_plain_loop():
    rng = np.random.default_rng(1)
    for _ in range(200):
        rows, w = rng.standard_normal((int(rng.integers(1, 9)), 5)), rng.standard_normal(5).astype(np.float32)
        found = updates(rows)
        expected = [
            float(w[k]) + sum(float(found.deltas[i, k]) for i in range(len(rows))) / len(rows) for k in range(5)
        ]
        np.testing.assert_allclose(MeanAggregation().combine(w, found, None).weights, expected, rtol=2e-7, atol=1e-7)


def test_every_set_of_nodes_is_equally_likely():
    """2 of 4: each of the 6 sets has the probability 1/6."""
    selection = begun(RandomSelection, count=4, per_round=2)
    found = distribution(lambda rng: frozenset(selection.draw(rng, None)))
    chances = {
        pair: sum(p for p, drawn in found.outcomes if drawn == set(pair))
        for pair in itertools.combinations(range(4), 2)
    }
    assert found.exact and chances == pytest.approx(dict.fromkeys(chances, 1 / 6))


def test_the_same_seed_gives_two_strategies_the_same_draws():
    """Figure 1: FedAvg and Optimal Aggregation see the same nodes, because the stream's name is the same."""
    one, two = begun(RandomSelection), begun(RandomSelection)
    for t in range(1, 20):
        assert one.draw(stream(3, "draw", t), None) == two.draw(stream(3, "draw", t), None)
        assert one.draw(stream(3, "draw", t), None) != one.draw(stream(4, "draw", t), None)


@pytest.mark.parametrize("per_round, iid", [(10, 5), (7, 4), (1, 1)])
def test_half_draws_half(per_round, iid):
    """Figure 1: half of S_t are i.i.d. nodes, the larger half where it is odd."""
    selection = begun(HalfSelection, per_round=per_round)
    for t in range(20):
        drawn = selection.draw(stream(1, "draw", t), None)
        assert len(set(drawn)) == per_round and sum(node < 25 for node in drawn) == iid


def test_half_refuses_a_population_without_both_kinds():
    with pytest.raises(InputError, match="half draws 5 i.i.d. and 5 other nodes per round; there are 3 and 47"):
        begun(HalfSelection, iid=3)
    with pytest.raises(InputError, match="half draws 5 i.i.d. and 5 other nodes per round; there are 46 and 4"):
        begun(HalfSelection, iid=46)
    begun(HalfSelection, iid=5)
    begun(HalfSelection, iid=45)
    begun(HalfSelection, iid=47, per_round=7)  # 4 and 3


# --- by oracle -------------------------------------------------------------------------------------------------------


def one_after_another(p, size):
    """The probability of every order in which `size` can be drawn, each time by what is left of p."""
    total = sum(p)
    for order in itertools.permutations([k for k in range(len(p)) if p[k] > 0], size):
        chance, left = 1.0, total
        for k in order:
            chance *= p[k] / left
            left -= p[k]
        yield order, chance


def test_draws_by_probability_are_successive():
    """200 random p, some of them 0: the probability of every set that can be drawn, by enumeration and by formula."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        p = rng.random(int(rng.integers(2, 5))) * (rng.random() > 0.1) + 0.01
        p[rng.random(len(p)) < 0.2] = 0.0
        size = int(rng.integers(1, len(p) + 1))
        if np.count_nonzero(p) <= size:
            continue
        expected = dict(one_after_another(p.tolist(), size))
        found = distribution(lambda rng, p=p, size=size: tuple(by_probability(rng, p, size)))
        assert {drawn: chance for chance, drawn in found.outcomes} == pytest.approx(expected)


def test_where_few_have_a_probability_the_rest_is_uniform():
    """p = 0, 1/2, nan, inf, 1/2 and three to draw: 1 and 4 for certain, then one of the others, each by 1/3."""
    p = np.array([0.0, 0.5, np.nan, np.inf, 0.5])
    found = distribution(lambda rng: tuple(by_probability(rng, p, 3)))
    assert {drawn: chance for chance, drawn in found.outcomes} == pytest.approx({(1, 4, k): 1 / 3 for k in (0, 2, 3)})
    assert by_probability(stream(1, "x"), p, 2) == [1, 4]
    assert sorted(by_probability(stream(1, "x"), p, 9)) == [0, 1, 2, 3, 4]


def test_uniform_draws_no_more_than_there_are():
    assert (
        sorted(uniform(stream(1, "x"), np.array([3, 5]), 7)) == [3, 5]
        and uniform(stream(1, "x"), np.arange(0), 2) == []
    )
    assert all(type(node) is int for node in uniform(stream(1, "x"), np.arange(9), 3))
