"""Sampling by norm (Chen et al. 2021), optimally (Chen et al. 2020), by importance and latency (Ren et al. 2020)."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpns_ray import InputError
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.fedavg import MeanAggregation
from fedpns_ray.strategies.importance_latency import ImportanceLatencySelection, des_raj, probabilities
from fedpns_ray.strategies.norm_sampling import NormSamplingSelection
from fedpns_ray.strategies.optimal_aggregation import OptimalAggregation
from fedpns_ray.strategies.optimal_sampling import OptimalSamplingSelection, optimal_probabilities
from tests.strategies.made import devices, nodes, updates

W = np.zeros(2, dtype=np.float32)


def begun(kind, count=4, per_round=2, model=None, **parameters):
    selection = kind(**{"candidates": count, **parameters})
    selection.begin(nodes(count, per_round, model=model))
    return selection


# --- by norm ---------------------------------------------------------------------------------------------------------


def test_probability_proportional_to_the_norm():
    """Norms 1 and 3: the second is sent with probability 3/4."""
    selection = begun(NormSamplingSelection, 2, 1)
    sent = [selection.sift(stream(1, "sift", t), updates([[1, 0], [0, 3]])).node_ids[0] for t in range(4000)]
    assert np.mean(sent) == pytest.approx(0.75, abs=0.02)


def test_norm_sampling_without_norms_and_with_few_nodes():
    selection = begun(NormSamplingSelection)
    for t in range(20):
        assert 1 in selection.sift(stream(1, "sift", t), updates([[0, 0], [0, 3], [0, 0], [0, 0]])).node_ids
        assert len(selection.sift(stream(1, "sift", t), updates(np.zeros((4, 2)))).node_ids) == 2
    assert selection.sift(stream(1, "sift", 1), updates([[1, 1]], ids=(3,))).node_ids == (3,)
    assert selection.sift(stream(1, "sift", 1), updates(np.zeros((0, 2)))).node_ids == ()
    sent = begun(NormSamplingSelection, 1, 1).sift(stream(1, "sift", 1), updates([[1, 2]]))
    assert sent.node_ids == (0,) and sent.shares is None  # all count alike


# --- optimally ------------------------------------------------------------------------------------------------------


def test_optimal_probabilities_by_hand():
    """The optimal participation of the paper, n = 4, m = 2. Norms 1, 2, 3, 10: l = 4 fails as 2 x 10 > 16; l = 3 holds
    as 1 x 3 <= 6, so p = 1/6, 2/6, 3/6, 1. Norms 1, 2, 2, 3: l = 4 holds as 2 x 3 <= 8, so p = 2 norm / 8."""
    np.testing.assert_allclose(optimal_probabilities(np.array([3.0, 10, 1, 2]), 2), [3 / 6, 1, 1 / 6, 2 / 6])
    np.testing.assert_allclose(optimal_probabilities(np.array([1.0, 2, 2, 3]), 2), [0.25, 0.5, 0.5, 0.75])


def test_optimal_probabilities_at_the_edges():
    np.testing.assert_allclose(optimal_probabilities(np.ones(4), 2), 0.5)
    np.testing.assert_allclose(optimal_probabilities(np.zeros(4), 2), 0.5)
    assert optimal_probabilities(np.array([5.0]), 1).tolist() == [1] and optimal_probabilities(
        np.ones(2), 3
    ).tolist() == [1, 1]
    assert optimal_probabilities(np.array([0.0, 0, 5]), 2).tolist() == [0, 0, 1]
    np.testing.assert_allclose(optimal_probabilities(np.array([0.0, 1, 1]), 1), [0, 0.5, 0.5])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=8), st.data())
def test_no_other_probabilities_have_less_variance(norms, data):
    """The variance is sum of (1/p_i - 1) ||u_i||^2 (independent draws); p sums to m."""
    norms = np.array(norms)
    m = data.draw(st.integers(1, len(norms)))
    p = optimal_probabilities(norms, m)
    assert p.sum() == pytest.approx(m) and (p > 0).all() and (p <= 1).all()
    raw = np.array(data.draw(st.lists(st.floats(0.05, 1), min_size=len(norms), max_size=len(norms))))
    other = np.minimum(raw * m / raw.sum(), 1)  # sums to m, or to less
    variance = lambda q: float(((1 / q - 1) * norms**2).sum())  # noqa: E731
    assert variance(p) <= variance(other) * (1 + 1e-9)


def test_optimal_sampling_is_unbiased():
    """The mean over many draws of what is aggregated is the mean over all, by data size."""
    selection = begun(OptimalSamplingSelection)
    found = updates([[1, 0], [0, 2], [3, 1], [-4, 4]], sizes=[100, 100, 200, 400])
    full = found.sizes / 800 @ found.deltas
    total, senders = np.zeros(2), 0
    for t in range(6000):
        sent = selection.sift(stream(1, "sift", t), found)
        senders += len(sent)
        if len(sent):
            total += MeanAggregation().combine(W, sent, None).weights
    np.testing.assert_allclose(total / 6000, full, atol=0.05)
    assert senders / 6000 == pytest.approx(2, abs=0.05)


# --- by importance and latency --------------------------------------------------------------------------------------


def test_importance_alone_and_equal_latencies():
    a = np.array([1.0, 2, 5])
    np.testing.assert_allclose(probabilities(a, np.array([9.0, 1, 4]), 1.0), a / 8)
    np.testing.assert_allclose(probabilities(a, np.full(3, 7.0), 0.3), a / 8)


def test_the_trade_off_is_the_best_of_all():
    """Two equal updates, upload times 1 and 3, rho 1/2: over a fine grid no p is better than this one."""
    p = probabilities(np.array([1.0, 1.0]), np.array([1.0, 3.0]), 0.5)
    q = np.linspace(0.001, 0.999, 99801)
    cost = 0.5 * (0.25 / q + 0.25 / (1 - q)) + 0.5 * (q * 0.5 + (1 - q) * 1.5)
    assert p[0] == pytest.approx(q[np.argmin(cost)], abs=2e-5) and p[0] > 0.5 and p.sum() == pytest.approx(1)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=1, max_size=8), st.floats(0.01, 1))
def test_the_stationary_point(pairs, rho):
    """rho a_i^2 / p_i^2 - (1 - rho) T_i is the same lambda for all i."""
    norms, latency = np.array(pairs).T
    p = probabilities(norms, latency, rho)
    a, cost = norms / norms.sum(), (1 - rho) * latency / latency.mean()
    multiplier = rho * (a / p) ** 2 - cost
    assert p.sum() == pytest.approx(1) and (p > 0).all()
    np.testing.assert_allclose(multiplier, multiplier[0], atol=1e-6 * (1 + abs(cost).max() + abs(multiplier).max()))


def test_latency_edges():
    np.testing.assert_allclose(probabilities(np.zeros(2), np.array([2.0, 2.0]), 0.5), 0.5)
    assert probabilities(np.zeros(2), np.array([1.0, 9.0]), 0.2)[0] > 0.5
    assert probabilities(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 0.5).tolist() == [0, 1]
    assert probabilities(np.array([3.0]), np.array([1.0]), 0.5).tolist() == [1]


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_des_raj_is_unbiased(m):
    """Over all orders in which m of 4 can be drawn, each with its probability."""
    p, y = np.array([0.1, 0.2, 0.3, 0.4]), np.array([5.0, -1, 2, 8])
    expected, whole = 0.0, 0.0
    for order in map(list, itertools.permutations(range(4), m)):
        left = 1 - np.concatenate([[0], np.cumsum(p[order])[:-1]])
        chance = np.prod(p[order] / left)
        whole += chance
        expected += chance * (des_raj(p[order]) * y[order]).sum()
    assert whole == pytest.approx(1) and expected == pytest.approx(y.sum())


def test_importance_latency_sends_what_it_should():
    model = devices([100] * 4, [10, 10, 10, 1000])
    selection = begun(ImportanceLatencySelection, model=model, importance=0.1)
    found = updates([[1, 0], [0, 1], [-1, 0], [0, -1]], upload=model.resources(1).upload)
    sent = [selection.sift(stream(1, "sift", t), found) for t in range(2000)]
    counts = np.bincount([node for s in sent for node in s.node_ids])
    assert all(len(s) == 2 for s in sent) and counts[3] > 1.2 * counts[:3].max()
    total = sum(MeanAggregation().combine(W, s, None).weights for s in sent) / 2000
    np.testing.assert_allclose(total, [0, 0], atol=0.05)  # unbiased, though the fast node is sent more often


def test_importance_latency_needs_devices():
    with pytest.raises(InputError, match="devices: off is not allowed; importance-latency needs a device model"):
        begun(ImportanceLatencySelection)


def test_optimal_aggregation_keeps_the_sum_of_the_shares():
    """delta_2 works against the others and is excluded: 0.2, 0.2 and 0.6 become 0.5 and 0.5."""
    found = updates([[1, 0], [1, 0], [-1, 0]], shares=np.array([0.2, 0.2, 0.6]))
    outcome = OptimalAggregation(v=0.5).combine(W, found, lambda weights, samples, first: -float(weights[0]))
    assert outcome.excluded == (2,)
    np.testing.assert_allclose(outcome.weights, [1, 0], rtol=1e-6)
