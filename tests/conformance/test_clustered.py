"""Clustered sampling: Proposition 1 and Algorithms 1 and 2 of Fraboni et al. 2021, by hand, by oracle and exactly."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Nodes, Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.clustered import (
    ClusteredBySimilaritySelection,
    ClusteredBySizeSelection,
    by_similarity,
    cut,
    filled,
)
from tests.conformance.oracles.clustered import algorithm_1, released_clusters
from tests.strategies.made import updates

DIFFERENCES = (
    "Masses are whole numbers of samples, so that every distribution sums to 1 exactly; the released code rounds to "
    "1e-10 and divides by what it gets.",
    "A node with 1/m of all samples or more first fills distributions of its own; the released Algorithm 2 then has "
    "fewer clusters than distributions and fails.",
    "The L1 distance is not offered; the paper finds no difference between its three distances.",
    "Drawn nodes that are the same node train once and weigh as often as they were drawn.",
)
NOTHING = Outcome(np.zeros(1, dtype=np.float32))


def nodes(sizes, per_round, parameters=2):
    return Nodes(np.array(sizes), np.zeros(len(sizes), dtype=bool), per_round, parameters=parameters)


def by_size(sizes, per_round):
    selection = ClusteredBySizeSelection()
    selection.begin(nodes(sizes, per_round))
    return selection


def alike(rows, sizes, per_round, **more):
    selection = ClusteredBySimilaritySelection(**more)
    selection.begin(nodes(sizes, per_round, len(rows[0])))
    selection.learn(updates(rows, sizes=sizes), NOTHING)
    return selection


def masses(selection, seed=1):
    n = selection._nodes
    size = min(n.per_round, n.count)
    return selection.masses(stream(seed, "draw"), np.arange(n.count), size)


def test_algorithm_1_by_hand():
    """Sizes 1, 3, 2 of 6, m = 2: masses 2, 6, 4, and a row holds 6. Node 1 fills row 0; 2 and 0 fill row 1."""
    assert masses(by_size([1, 3, 2], 2)).tolist() == [[0, 6, 0], [2, 0, 4]]
    """Sizes 2, 2, 2, m = 2: masses of 4, rows of 6: node 1 is cut in two."""
    assert masses(by_size([2, 2, 2], 2)).tolist() == [[4, 2, 0], [0, 2, 4]]
    """A node of 3/4, m = 2: it fills row 0 and half of row 1."""
    assert masses(by_size([1, 3], 2)).tolist() == [[0, 4], [2, 2]]


def test_algorithm_1_against_exact_fractions():
    for case in range(200):
        rng = stream(case, "case")
        sizes = rng.integers(1, 30, int(rng.integers(1, 9))).tolist()
        m = int(rng.integers(1, len(sizes) + 1))
        total = sum(sizes)
        found = [[Fraction(int(x), total) for x in row] for row in masses(by_size(sizes, m))]
        assert found == algorithm_1(sizes, m)


def assert_proposition_1(rows, sizes):
    """Each distribution sums to 1, and those of a node to m p_i: in whole numbers, exactly."""
    assert (rows >= 0).all() and (rows.sum(axis=1) == sum(sizes)).all()
    assert rows.sum(axis=0).tolist() == [len(rows) * size for size in sizes]


@pytest.mark.parametrize("similarity", ["arccos", "l2"])
def test_algorithm_2_keeps_proposition_1_and_the_released_clusters(similarity):
    for case in range(150):
        rng = stream(case, "case")
        count = int(rng.integers(2, 11))
        sizes, m = rng.integers(1, 20, count), int(rng.integers(1, count + 1))
        rows = rng.standard_normal((count, 3)).astype(np.float32).astype(float)
        selection = alike(rows, sizes, m, similarity=similarity)
        found = masses(selection, case)
        assert_proposition_1(found, sizes.tolist())
        if (m * sizes < sizes.sum()).all():
            released = released_clusters(rows.tolist(), sizes.tolist(), m, squared=similarity == "l2")
            largest = sorted(released, key=lambda cluster: sum(sizes[cluster]))[-m:]
            supports = [set(np.flatnonzero(row).tolist()) for row in found]
            weights = sorted(sum(int(sizes[node]) for node in cluster) for cluster in largest)
            assert len(released) >= m
            if len({sum(int(sizes[n]) for n in c) for c in released}) == len(released):  # no ties
                assert all(any(set(cluster) <= support for support in supports) for cluster in largest), weights


def test_algorithm_2_by_hand():
    """Four nodes of 1 sample, two directions, m = 2: a distribution per direction."""
    selection = alike([[1, 0], [0, 1], [2, 0], [0, 3]], [1, 1, 1, 1], 2)
    assert sorted(masses(selection).tolist()) == [[0, 2, 0, 2], [2, 0, 2, 0]]
    """Three alike and one apart, m = 2 (a row holds 4, a node weighs 2): of the tree of three, one pair fits and is
    full; the fourth node's distribution is filled up with the third."""
    rows = masses(alike([[1, 0], [1, 0.01], [1, 0.02], [0, 1]], [1, 1, 1, 1], 2))
    assert_proposition_1(rows, [1, 1, 1, 1])
    assert (rows[:, 3] > 0).sum() == 1 and rows.max() == 2


def test_small_clusters_fill_up_in_random_order():
    """Six nodes of 1 sample in three pairs, m = 2: a row holds 6, a node weighs 2. Two pairs have a row each, with room
    for one more node: those of the first pair, either way round."""
    found = [by_similarity(stream(t, "draw"), [(0, 1), (2, 3), (4, 5)], np.ones(6, dtype=int), 2) for t in range(20)]
    assert {tuple(map(tuple, rows.tolist())) for rows in found} == {
        ((2, 0, 2, 2, 0, 0), (0, 2, 0, 0, 2, 2)),
        ((0, 2, 2, 2, 0, 0), (2, 0, 0, 0, 2, 2)),
    }


def test_large_nodes_have_distributions_of_their_own():
    """Sizes 9, 1, 1, 1 of 12, m = 2: masses 18, 2, 2, 2: node 0 fills one row, and 6 of 12 of the other."""
    rows = masses(alike([[1, 0], [0, 1], [0, 1], [0, 1]], [9, 1, 1, 1], 2))
    assert rows.tolist() == [[12, 0, 0, 0], [6, 2, 2, 2]]


def test_cutting_the_tree():
    """Merges (0, 1), (2, 3), (4, 5) over masses 1, 1, 2, 2: at most 3, only the first fits; at most 6, all do."""
    merges = [(0, 1), (2, 3), (4, 5)]
    assert cut(merges, np.array([1, 1, 2, 2]), 3) == [[2], [3], [0, 1]]
    assert cut(merges, np.array([1, 1, 2, 2]), 4) == [[0, 1], [2, 3]]
    assert cut(merges, np.array([1, 1, 2, 2]), 6) == [[0, 1, 2, 3]]
    assert cut(merges, np.array([0, 1, 0, 2]), 2) == [[1], [3]]  # nodes without mass are in no cluster


def test_filling_goes_on_where_there_is_room():
    rows = np.array([[4, 0], [1, 0], [0, 0]])
    assert filled(rows, [1], np.array([0, 7]), 4).tolist() == [[4, 0], [1, 3], [0, 4]]


@pytest.mark.parametrize("sizes, m", [([1, 3, 2], 2), ([2, 2, 2], 2), ([5, 1, 1, 1], 3), ([1, 2, 3, 4], 4)])
def test_the_expected_sum_is_that_of_all_nodes(sizes, m):
    """Exact enumeration over one node per distribution, through `draw` and `sift`: E sum = sum of p_i delta_i."""
    deltas = np.arange(1.0, 1 + 2 * len(sizes)).reshape(-1, 2)
    for selection in (by_size(sizes, m), alike(deltas.tolist(), sizes, m)):
        rows = masses(selection)
        mean = np.zeros(2)
        for chosen in itertools.product(range(len(sizes)), repeat=m):
            p = np.prod([rows[k][node] / sum(sizes) for k, node in enumerate(chosen)])
            if p:
                selection._drawn = chosen
                distinct = sorted(set(chosen))
                sent = selection.sift(None, updates(deltas[distinct], ids=distinct, sizes=[sizes[k] for k in distinct]))
                assert sent.shares.sum() == pytest.approx(1)
                mean += p * sent.shares @ deltas[distinct]
        np.testing.assert_allclose(mean, np.array(sizes) / sum(sizes) @ deltas, rtol=1e-12)


def test_draws_follow_the_distributions():
    """Sizes 1, 3, 2, m = 2: node 1 always; the other is node 2 in two of three draws."""
    selection = by_size([1, 3, 2], 2)
    drawn = [tuple(selection.draw(stream(t, "draw"), None)) for t in range(3000)]
    assert set(drawn) == {(0, 1), (1, 2)} and np.mean([pair == (1, 2) for pair in drawn]) == pytest.approx(
        2 / 3, abs=0.03
    )
    twice = by_size([1, 3], 2)  # row 1 is half node 1's: drawn twice, it trains once and weighs 1
    shares = set()
    for t in range(50):
        distinct = twice.draw(stream(t, "draw"), None)
        shares.add(tuple(twice.sift(None, updates(np.zeros((len(distinct), 1)), ids=distinct)).shares.tolist()))
    assert shares == {(1.0,), (0.5, 0.5)}


def test_missing_nodes_are_missed():
    selection = by_size([2, 2], 2)
    assert selection.draw(stream(1, "draw"), None) == [0, 1]
    assert selection.sift(None, updates([[1]], ids=(1,))).shares.tolist() == [0.5]
    assert len(selection.sift(None, updates(np.zeros((0, 1))))) == 0


def test_edges_and_restored_state():
    for selection in (by_size([7], 1), alike([[1, 2]], [7], 1)):
        assert selection.draw(stream(1, "draw"), None) == [0]
        assert selection.sift(None, updates([[1]])).shares.tolist() == [1]
    for selection in (by_size([7, 3], 5), alike([[0, 0], [0, 0]], [7, 3], 5)):  # fewer than asked; zero norms
        assert set(selection.draw(stream(1, "draw"), None)) <= {0, 1}
        assert_proposition_1(masses(selection), [7, 3])
    fresh = ClusteredBySimilaritySelection()
    fresh.begin(nodes([1] * 6, 3))  # nobody is known
    assert_proposition_1(masses(fresh), [1] * 6)
    one = alike(stream(1, "case").standard_normal((6, 2)), [1, 2, 3, 4, 5, 6], 3)
    fresh.begin(nodes([1, 2, 3, 4, 5, 6], 3))
    fresh.load_state_dict(one.state_dict())
    assert [one.draw(stream(t, "draw"), None) for t in range(9)] == [
        fresh.draw(stream(t, "draw"), None) for t in range(9)
    ]
    assert by_similarity(stream(1, "draw"), [], np.array([3]), 1).tolist() == [[3]]
