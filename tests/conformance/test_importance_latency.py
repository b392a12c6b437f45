"""Importance and latency: the trade-off of Ren et al. 2020, by hand, by grid and by enumeration."""

import itertools

import numpy as np
import pytest

from fedpns_ray import InputError
from fedpns_ray.conformance.enumeration import distribution
from fedpns_ray.strategies.importance_latency import ImportanceLatencySelection, des_raj, probabilities
from tests.strategies.made import devices, nodes, updates

DIFFERENCES = (
    "Importance and latency are made dimensionless (divided by their sum and their mean), so that rho has no unit; "
    "it is not the paper's number.",
    "For several nodes the paper draws without replacement; the shares here are those of Des Raj's estimator, which "
    "keeps the sum unbiased.",
    "|M| candidates train; in the paper every node does (set `candidates` to the number of nodes for that).",
)


def begun(count=4, per_round=2, model=None, **parameters):
    selection = ImportanceLatencySelection(candidates=count, **parameters)
    selection.begin(nodes(count, per_round, model=model or devices([100] * count, [10] * count)))
    return selection


def test_importance_alone_and_equal_latencies():
    """Where nothing trades off, p_i = a_i / sum: 1/8, 2/8, 5/8."""
    a = np.array([1.0, 2, 5])
    np.testing.assert_allclose(probabilities(a, np.array([9.0, 1, 4]), 1.0), a / 8)
    np.testing.assert_allclose(probabilities(a, np.full(3, 7.0), 0.3), a / 8)


def test_the_trade_off_is_the_best_of_all():
    """Two equal updates, upload times 1 and 3, rho 1/2: over a fine grid no p is better than this one."""
    p = probabilities(np.array([1.0, 1.0]), np.array([1.0, 3.0]), 0.5)
    q = np.linspace(0.001, 0.999, 99801)
    cost = 0.5 * (0.25 / q + 0.25 / (1 - q)) + 0.5 * (q * 0.5 + (1 - q) * 1.5)
    assert p[0] == pytest.approx(q[np.argmin(cost)], abs=2e-5) and p[0] > 0.5 and p.sum() == pytest.approx(1)


def test_the_stationary_point():
    """100 random cases: rho a_i^2 / p_i^2 - (1 - rho) T_i is the same lambda for all i."""
    rng = np.random.default_rng(17)
    for _ in range(100):
        n, rho = int(rng.integers(1, 8)), float(rng.uniform(0.01, 1))
        norms, latency = rng.uniform(0.01, 100, n), rng.uniform(0.01, 100, n)
        p = probabilities(norms, latency, rho)
        a, cost = norms / norms.sum(), (1 - rho) * latency / latency.mean()
        multiplier = rho * (a / p) ** 2 - cost
        assert p.sum() == pytest.approx(1) and (p > 0).all()
        np.testing.assert_allclose(multiplier, multiplier[0], atol=1e-6 * (1 + abs(cost).max() + abs(multiplier).max()))


def test_at_the_edges():
    np.testing.assert_allclose(probabilities(np.zeros(2), np.array([2.0, 2.0]), 0.5), 0.5)
    assert probabilities(np.zeros(2), np.array([1.0, 9.0]), 0.2)[0] > 0.5
    assert probabilities(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 0.5).tolist() == [0, 1]
    assert probabilities(np.array([3.0]), np.array([1.0]), 0.5).tolist() == [1]


def test_des_raj_by_hand():
    """p = 0.2, 0.3, both drawn: t_1 = y_1 / 0.2, t_2 = y_1 + y_2 0.8 / 0.3, and their mean: y_1 3 + y_2 (4/3)."""
    np.testing.assert_allclose(des_raj(np.array([0.2, 0.3])), [3, 4 / 3])


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


def test_what_is_sent():
    """Two of three, in order of ids; shares are Des Raj's times psi_i; in expectation the mean by data size."""
    found = updates([[1, 0], [0, 2], [3, 1]], sizes=[100, 100, 200], upload=np.array([1.0, 2.0, 5.0]))
    rounds = distribution(lambda rng: begun(3, 2, importance=0.3).sift(rng, found))
    assert rounds.exact and all(
        len(sent) == 2 and sent.node_ids == tuple(sorted(sent.node_ids)) for _, sent in rounds.outcomes
    )
    mean = sum(p * (sent.shares @ sent.deltas) for p, sent in rounds.outcomes)
    np.testing.assert_allclose(mean, [0.25 * 1 + 0.5 * 3, 0.25 * 2 + 0.5 * 1], rtol=1e-6)
    p = probabilities(np.array([0.25, 0.5, 0.5 * 10**0.5]), found.upload, 0.3)
    single = distribution(lambda rng: begun(3, 1, importance=0.3).sift(rng, found).node_ids)
    assert {ids: chance for chance, ids in single.outcomes} == pytest.approx({(k,): p[k] for k in range(3)})
    zeros = updates([[0, 0], [1, 0], [0, 0]], upload=np.ones(3))
    assert {sent.node_ids for _, sent in distribution(lambda rng: begun(3, 2).sift(rng, zeros)).outcomes} == {(1,)}


def test_without_updates_devices_and_the_default():
    nobody = updates(np.zeros((0, 2)))
    assert begun().sift(None, nobody) is nobody and ImportanceLatencySelection().importance == 0.5
    untimed = updates([[1, 0], [0, 1]])
    assert begun().sift(None, untimed) is untimed
    with pytest.raises(InputError, match="devices: off is not allowed; importance-latency needs a device model"):
        ImportanceLatencySelection(candidates=4).begin(nodes(4, 2))
