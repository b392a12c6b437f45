"""Vanilla FedAvg, from the FedPNS paper's footnote to (5) and Algorithm 1 of McMahan et al. 2017."""

import numpy as np

from fedpns_ray.strategies.fedavg_full import AllNodesAggregation
from tests.strategies.made import nodes, updates

DIFFERENCES = (
    "McMahan et al. write sum of n_k/n w_k over the drawn nodes, with n the samples of all nodes; taken literally, the "
    "weights of a model would then sum to less than 1. As the footnote says, those that were not drawn stand for the "
    "old model. Most public codes divide by the samples of the drawn nodes instead, which is another method.",
)


def begun(sizes, per_round=2):
    aggregation = AllNodesAggregation()
    aggregation.begin(nodes(len(sizes), per_round, sizes=sizes))
    return aggregation


def test_those_that_were_not_drawn_stand_for_the_old_model():
    """psi = (0.1, 0.3, 0.6): w = 0.1 w_0 + 0.3 w + 0.6 w_2 = w + 0.1 delta_0 + 0.6 delta_2."""
    found = updates([[10, 0], [0, 5]], ids=(0, 2), sizes=[100, 600])
    outcome = begun([100, 300, 600]).combine(np.array([1, 1], dtype=np.float32), found, None)
    np.testing.assert_allclose(outcome.weights, [2, 4])
    assert outcome.aggregated == (0, 2) and outcome.weights.dtype == np.float32


def test_one_node_is_all_nodes():
    assert begun([100], 1).combine(np.zeros(2, dtype=np.float32), updates([[1, 2]]), None).weights.tolist() == [1, 2]


def test_equal_nodes_move_by_c_times_the_mean():
    """5 of 20 equal nodes: a quarter of the mean."""
    found = updates(np.arange(10).reshape(5, 2), ids=(1, 4, 7, 9, 13))
    moved = begun([100] * 20).combine(np.zeros(2, dtype=np.float32), found, None).weights
    np.testing.assert_allclose(moved, found.deltas.mean(axis=0) / 4, rtol=1e-6)


def test_the_sum_over_all_models():
    """300 random rounds: w_new = sum over every node of K of psi_i w_i, where w_i = w for those that were not drawn."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        sizes = rng.integers(1, 500, int(rng.integers(1, 9)))
        drawn = sorted(rng.choice(len(sizes), int(rng.integers(1, len(sizes) + 1)), replace=False).tolist())
        w, deltas = rng.standard_normal(3).astype(np.float32), rng.standard_normal((len(drawn), 3)).astype(np.float32)
        expected = [0.0, 0.0, 0.0]
        for node, size in enumerate(sizes.tolist()):
            for k in range(3):
                own = float(w[k]) + (float(deltas[drawn.index(node), k]) if node in drawn else 0.0)
                expected[k] += size / sum(sizes.tolist()) * own
        found = updates(deltas, ids=drawn, sizes=sizes[drawn])
        np.testing.assert_allclose(begun(sizes).combine(w, found, None).weights, expected, rtol=1e-5, atol=1e-6)
