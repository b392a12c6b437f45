"""FedAdp: smoothed angles, the Gompertz function and the weights of Algorithm 1 of Wu and Wang 2021."""

import math

import numpy as np
import pytest

from fedpns_ray.strategies.fedadp import AdaptiveAggregation, angles, contribution
from tests.strategies.made import nodes, updates

DIFFERENCES = (
    "The angle of a node is averaged over the rounds that it took part in; the paper averages over all rounds, with "
    "every node in each of them.",
    "A zero gradient has no direction: its angle is taken as pi/2.",
)
W = np.zeros(2, dtype=np.float32)


def begun(count=3, **parameters):
    aggregation = AdaptiveAggregation(**parameters)
    aggregation.begin(nodes(count, count))
    return aggregation


def test_the_gompertz_function():
    """f(theta) = alpha (1 - exp(-exp(-alpha (theta - 1)))), with alpha = 5.

    f(1) = 5 (1 - 1/e); f(pi/2) = 5 (1 - exp(-exp(-2.854))) = 0.280; f(0) = 5 (1 - exp(-e^5)) = 5.
    """
    np.testing.assert_allclose(
        contribution(np.array([1, np.pi / 2, 0]), 5.0), [5 * (1 - np.exp(-1)), 0.27996, 5.0], atol=1e-4
    )
    assert AdaptiveAggregation().gompertz == 5.0  # alpha of the paper's experiments


def test_weights_of_three_nodes():
    """g = (2, 1)/3: angles arccos(2/sqrt 5) = 0.4636 twice and arccos(1/sqrt 5) = 1.1071, so f = 5.0000, 5.0000, 2.2151
    and weights e^5 : e^5 : e^2.2151 = 0.48503 : 0.48503 : 0.02994."""
    found = updates([[1, 0], [1, 0], [0, 1]])
    np.testing.assert_allclose(angles(found), [0.46365, 0.46365, 1.10715], atol=1e-5)
    outcome = begun().combine(W, found, None)
    np.testing.assert_allclose(outcome.notes["shares"], [0.48503, 0.48503, 0.02994], atol=1e-4)
    np.testing.assert_allclose(outcome.weights, [0.97006, 0.02994], atol=1e-4)
    assert outcome.aggregated == (0, 1, 2)


def test_data_size_counts_in_the_global_gradient_and_in_the_weights():
    """Orthogonal, sizes 3 : 1: g = (3, 1)/4, angles arctan(1/3) = 0.32175 and arctan 3 = 1.24905."""
    found = updates([[1, 0], [0, 1]], sizes=[300, 100])
    np.testing.assert_allclose(angles(found), [np.arctan(1 / 3), np.arctan(3)], atol=1e-9)
    f = contribution(angles(found), 5.0)
    share = 3 * np.exp(f[0]) / (3 * np.exp(f[0]) + np.exp(f[1]))
    np.testing.assert_allclose(begun(2).combine(W, found, None).weights, [share, 1 - share], rtol=1e-6)


def test_angles_are_smoothed_over_the_rounds_of_a_node():
    """Node 0 is at pi/4 in its first round and at 0 in its second: (pi/4 + 0)/2."""
    aggregation = begun()
    aggregation.combine(W, updates([[1, 0], [0, 1]], ids=(0, 1)), None)
    aggregation.combine(W, updates([[1, 0], [1, 0]], ids=(0, 2)), None)
    np.testing.assert_allclose(aggregation.state_dict()["angles"], [np.pi / 8, np.pi / 4, 0], atol=1e-7)
    assert aggregation.state_dict()["times"].tolist() == [2, 1, 1]


def test_one_node_equal_nodes_and_zero_norms():
    assert begun().combine(W, updates([[3, 4]]), None).weights.tolist() == [3, 4]
    np.testing.assert_allclose(begun().combine(W, updates([[1, 1]] * 3), None).weights, [1, 1], rtol=1e-6)
    np.testing.assert_allclose(angles(updates([[0, 0], [2, 0]])), [np.pi / 2, 0], atol=1e-7)
    np.testing.assert_allclose(angles(updates([[-1, 0], [2, 0]])), [np.pi, 0], atol=1e-7)
    outcome = begun().combine(W, updates([[0, 0], [0, 0]]), None)
    assert outcome.weights.tolist() == [0, 0] and outcome.notes["shares"] == [0.5, 0.5]


def test_rounding_makes_no_angle_of_nothing():
    """A cosine may be outside of -1 .. 1 by rounding: the angle is pi or 0, and a number."""
    rng = np.random.default_rng(20)
    for _ in range(200):
        own = rng.standard_normal(3)
        np.testing.assert_allclose(angles(updates([own])), 0, atol=1e-6)
        np.testing.assert_allclose(angles(updates([own, -2 * own])), [np.pi, 0], atol=1e-6)


def test_a_node_that_points_away_hardly_counts():
    assert begun().combine(W, updates([[1, 0], [1, 0], [-1, 0]]), None).weights[0] == pytest.approx(1, abs=0.02)


def test_against_a_plain_loop():
    """200 random histories of 3 rounds: angle, mean, f and weight, with lists."""
    rng = np.random.default_rng(11)
    for _ in range(200):
        alpha = float(rng.uniform(0.5, 8))
        aggregation, known = begun(5, gompertz=alpha), {node: [] for node in range(5)}
        for _ in range(3):
            drawn = sorted(rng.choice(5, 3, replace=False).tolist())
            sizes, rows = rng.integers(1, 300, 3).tolist(), rng.standard_normal((3, 2)).astype(np.float32)
            together = [sum(sizes[i] * float(rows[i, k]) for i in range(3)) / sum(sizes) for k in range(2)]
            raw = []
            for i, node in enumerate(drawn):
                own = [float(x) for x in rows[i]]
                cosine = sum(a * b for a, b in zip(own, together, strict=True)) / (
                    math.hypot(*own) * math.hypot(*together)
                )
                known[node].append(math.acos(max(-1.0, min(1.0, cosine))))
                theta = sum(known[node]) / len(known[node])
                raw.append(sizes[i] * math.exp(alpha * (1 - math.exp(-math.exp(-alpha * (theta - 1))))))
            outcome = aggregation.combine(W, updates(rows, ids=drawn, sizes=sizes), None)
            np.testing.assert_allclose(outcome.notes["shares"], [x / sum(raw) for x in raw], rtol=1e-6)
