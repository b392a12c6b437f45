"""The memory of last updates: inner products, distances, angles and Ward's tree, against plain loops and scipy."""

import math

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from fedpns_ray import InputError
from fedpns_ray.core.interfaces import Nodes, Outcome
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.memory import (
    MOST_NODES,
    RememberingSelection,
    angles,
    inner_products,
    members,
    squared_distances,
    ward_merges,
)
from tests.strategies.made import updates

DIFFERENCES = ()


class Remembering(RememberingSelection):
    name = "remembering"


def begun(count, parameters, **more):
    selection = Remembering(**more)
    selection.begin(Nodes(np.full(count, 1), np.zeros(count, dtype=bool), 1, parameters=parameters, last_layer=(2, 3)))
    return selection


def test_distances_and_angles_by_hand():
    """(3, 0), (0, 4), (-6, 0), (0, 0): squares 9, 16, 36, 0. 9 + 16 = 25; (3 + 6)^2 = 81; right and straight angles."""
    rows = np.array([[3, 0], [0, 4], [-6, 0], [0, 0]], dtype=np.float32)
    products = inner_products(rows, rows)
    assert products[0].tolist() == [9, 0, -18, 0]
    assert squared_distances(products)[0].tolist() == [0, 25, 81, 9]
    np.testing.assert_allclose(angles(products)[0], [0, math.pi / 2, math.pi, 0])


def test_against_plain_loops():
    for case in range(100):
        rng = stream(case, "case")
        rows = rng.standard_normal((int(rng.integers(1, 6)), int(rng.integers(1, 5)))).astype(np.float32)
        found = inner_products(rows, rows)
        for i, a in enumerate(rows.astype(float)):
            for j, b in enumerate(rows.astype(float)):
                assert found[i, j] == pytest.approx(sum(a * b))
                assert squared_distances(found)[i, j] == pytest.approx(sum((a - b) ** 2), abs=1e-12)
                cosine = sum(a * b) / math.sqrt(sum(a * a) * sum(b * b))
                assert angles(found)[i, j] == pytest.approx(math.acos(max(-1, min(1, cosine))), abs=1e-6)


def test_long_rows_are_summed_piece_by_piece():
    ones = np.ones((2, 70_000), dtype=np.float32)
    assert inner_products(ones, ones).tolist() == [[70_000, 70_000]] * 2


def test_equal_rows_have_equal_products():
    """So that the distance of two equal updates is 0, and a tie is a tie."""
    for case in range(20):
        row = stream(case, "case").standard_normal((1, 1000 + 37 * case)).astype(np.float32)
        products = inner_products(np.repeat(row, 3, axis=0), np.repeat(row, 1 + case, axis=0))
        assert (products == products[0, 0]).all()


def test_rounding_makes_no_angle():
    """Cosines a little above 1 and below -1; and sqrt(2) sqrt(2) is not 2. A diverged node is at 0 from itself."""
    high = 1 + 1e-15
    assert angles(np.array([[1.0, high], [high, 1.0]])).tolist() == [[0, 0], [0, 0]]
    np.testing.assert_allclose(angles(np.array([[1.0, -high], [-high, 1.0]])), [[0, math.pi], [math.pi, 0]])
    assert angles(np.array([[2.0]])).tolist() == [[0]]
    with np.errstate(invalid="ignore"):
        assert squared_distances(np.array([[np.inf]])).tolist() == [[0]]


def test_products_follow_the_rows():
    """After any rounds, the products are those of the rows, and the rows are the last updates."""
    selection, last = begun(5, 3), np.zeros((5, 3), dtype=np.float32)
    for t in range(6):
        rng = stream(t, "case")
        ids = sorted(rng.choice(5, 2, replace=False).tolist())
        last[ids] = rng.standard_normal((2, 3))
        selection.learn(updates(last[ids], ids=ids), Outcome(np.zeros(1, dtype=np.float32)))
        state = selection.state_dict()
        np.testing.assert_array_equal(state["rows"], last)
        np.testing.assert_allclose(state["products"], last.astype(float) @ last.T.astype(float), rtol=1e-12, atol=1e-12)
    assert state["known"].tolist() == last.any(axis=1).tolist()
    selection.learn(updates(np.zeros((0, 3))), Outcome(np.zeros(1, dtype=np.float32)))


def test_buffers_and_all_but_the_last_layer_are_left_out():
    """10 parameters and 1 buffer; the last layer has 2 outputs of 3 inputs: 6 weights and 2 biases, the last 8."""
    selection = begun(1, 10, remembered="last-layer")
    selection.learn(updates([np.arange(11.0)], buffers=1), Outcome(np.zeros(1, dtype=np.float32)))
    assert selection.state_dict()["rows"].tolist() == [[2, 3, 4, 5, 6, 7, 8, 9]]


def test_unknown_nodes_come_first():
    selection = begun(6, 1)
    selection.learn(updates([[1.0], [1.0]], ids=(0, 3)), Outcome(np.zeros(1, dtype=np.float32)))
    everybody = np.arange(6)
    assert selection.unknown_first(stream(1, "draw"), everybody, 3) == [1, 2, 4]
    drawn = selection.unknown_first(stream(1, "draw"), everybody, 5)
    assert drawn[:4] == [1, 2, 4, 5] and drawn[4] in (0, 3)
    assert sorted(selection.unknown_first(stream(1, "draw"), everybody, 9)) == [0, 1, 2, 3, 4, 5]


def test_the_tree_is_scipys():
    for case in range(30):
        features = stream(case, "case").standard_normal((8, 3))
        merges, tree = ward_merges(features), linkage(features, "ward")
        assert [set(pair) for pair in merges] == [{int(a), int(b)} for a, b in tree[:, :2]]
        labels = fcluster(tree, 3, criterion="maxclust")
        flat = sorted(np.flatnonzero(labels == label).tolist() for label in set(labels.tolist()))
        groups = members(merges[:5], 8)
        inside = {part for pair in merges[:5] for part in pair}
        assert sorted(group for k, group in enumerate(groups) if k not in inside) == flat
    assert ward_merges(np.array([[0.0, 1.0], [1.0, 0.0]])) == [(0, 1)]
    assert ward_merges(np.zeros((1, 1))) == [] and ward_merges(np.zeros((0, 0))) == []


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="nodes: 5001 is not allowed; at most 5000 updates are remembered"):
        begun(MOST_NODES + 1, 1)
    with pytest.raises(
        InputError, match=r"remembered: update of 100 nodes takes 4.2 GiB; at most 1 GiB is kept; remember"
    ):
        begun(100, 11_220_132)
    begun(100, 11_220_132, remembered="last-layer")
    begun(1024, 2**18)  # 1 GiB, made of zeros: nothing is touched yet
    assert begun(MOST_NODES, 1).state_dict()["rows"].shape == (MOST_NODES, 1)
    with pytest.raises(InputError, match="model: must end in a linear layer with biases, which remembering looks at"):
        Remembering(remembered="last-layer").begin(Nodes(np.ones(2, dtype=int), np.ones(2, dtype=bool), 1))
