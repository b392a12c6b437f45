"""Optimal client sampling: Chen, Horvath and Richtarik 2020, equation (7), by hand and against the released loop."""

import numpy as np
import pytest

from fedpns_ray.conformance.enumeration import distribution
from fedpns_ray.strategies.optimal_sampling import OptimalSamplingSelection, optimal_probabilities
from tests.strategies.made import nodes, updates

DIFFERENCES = (
    "The probabilities are the exact ones of (7); the released code approximates them by at most 4 rounds of rescaling "
    "(Algorithm 2), which keeps norms private and ends at the same numbers if it is not cut off.",
    "Norms that are all 0 make all probabilities equal; the released code divides by 0.",
)


def begun(count=4, per_round=2):
    selection = OptimalSamplingSelection(candidates=count)
    selection.begin(nodes(count, per_round))
    return selection


def test_by_hand():
    """(7), n = 4, m = 2. Norms 1, 2, 3, 10: l = 4 fails as 2 x 10 > 16; l = 3 holds as 1 x 3 <= 6, so p = 1/6,
    2/6, 3/6, 1. Norms 1, 2, 2, 3: l = 4 holds as 2 x 3 <= 8, so p = 2 norm / 8."""
    np.testing.assert_allclose(optimal_probabilities(np.array([3.0, 10, 1, 2]), 2), [3 / 6, 1, 1 / 6, 2 / 6])
    np.testing.assert_allclose(optimal_probabilities(np.array([1.0, 2, 2, 3]), 2), [0.25, 0.5, 0.5, 0.75])


def test_at_the_edges():
    np.testing.assert_allclose(optimal_probabilities(np.ones(4), 2), 0.5)
    np.testing.assert_allclose(optimal_probabilities(np.zeros(4), 2), 0.5)
    assert optimal_probabilities(np.array([5.0]), 1).tolist() == [1]
    assert (
        optimal_probabilities(np.ones(2), 3).tolist() == optimal_probabilities(np.array([1.0, 9]), 2).tolist() == [1, 1]
    )
    assert optimal_probabilities(np.array([0.0, 5]), 2).tolist() == [1, 1]  # enough room for all
    assert optimal_probabilities(np.array([0.0, 0, 5]), 2).tolist() == [0, 0, 1]
    np.testing.assert_allclose(optimal_probabilities(np.array([0.0, 1, 1]), 1), [0, 0.5, 0.5])


def released(norms, m):
    """The loop of the released code: scale, cap at 1, and scale what is below 1 again, until nothing exceeds 1."""
    n = len(norms)
    p = [min(1.0, x * m / sum(norms)) for x in norms]
    for _ in range(10 * n):
        below = [x for x in p if x < 1]
        if not below:
            break
        factor = (m - n + len(below)) / sum(below)
        p = [min(1.0, factor * x) if x < 1 else 1.0 for x in p]
        if factor <= 1:
            break
    return p


def test_the_probabilities_of_the_released_loop():
    """400 random cases, with heavy tails, so that some are capped."""
    rng = np.random.default_rng(15)
    for _ in range(400):
        norms = rng.pareto(0.7, int(rng.integers(2, 10))) + 0.01
        m = int(rng.integers(1, len(norms)))
        p = optimal_probabilities(norms, m)
        np.testing.assert_allclose(p, released(norms.tolist(), m), rtol=1e-6)
        assert p.sum() == pytest.approx(m) and (p > 0).all() and (p <= 1).all()


def test_no_other_probabilities_have_less_variance():
    """The variance is the sum of (1/p_i - 1) ||u_i||^2 (independent draws); p sums to m. 300 random rivals."""
    rng = np.random.default_rng(16)
    for _ in range(300):
        norms, raw = rng.uniform(0.01, 100, 6), rng.uniform(0.05, 1, 6)
        m = int(rng.integers(1, 7))
        p, other = optimal_probabilities(norms, m), np.minimum(raw * m / raw.sum(), 1)  # sums to m, or to less
        assert ((1 / p - 1) * norms**2).sum() <= ((1 / other - 1) * norms**2).sum() * (1 + 1e-9)


class Zeros:
    """A generator whose uniform numbers are exactly 0."""

    def random(self, size):
        return np.zeros(size)


def test_what_has_no_chance_is_never_sent():
    assert begun(3, 1).sift(Zeros(), updates([[0, 0], [1, 0], [0, 0]])).node_ids == (1,)


def test_shares():
    """Each sends with p_i = min(1, ...) of (7) and then weighs psi_i / p_i: norms psi_i ||delta_i||, |M| = 3, m = 1."""
    sent = updates([[1, 0], [0, 2], [3, 0]], sizes=[100, 100, 200])  # psi ||delta|| = 0.25, 0.5, 1.5
    p = [0.25 / 2.25, 0.5 / 2.25, 1.5 / 2.25]
    chances = np.zeros(3)
    for chance, found in distribution(lambda rng: begun(3, 1).sift(rng, sent)).outcomes:
        chances[list(found.node_ids)] += chance
        np.testing.assert_allclose(found.shares, [([0.25, 0.25, 0.5][k]) / p[k] for k in found.node_ids])
    np.testing.assert_allclose(chances, p)
    assert len(begun().sift(None, updates(np.zeros((0, 2))))) == 0
    zero = distribution(lambda rng: begun(3, 1).sift(rng, updates([[0, 0], [1, 0], [0, 0]])).node_ids)
    assert [ids for _, ids in zero.outcomes] == [(1,)]
