"""The Gaussian process of FedCor (Tang et al. 2022): fit and choice, by hand and against `GPR.py`."""

import numpy as np
import pytest

from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.gaussian_process import fitted, gradient, most_informative, residuals
from tests.conformance.oracles.fedcor import covariance, released_choice, released_fit

DIFFERENCES = (
    "It is computed in the dimensions of the embedding, in float64; the released code inverts N x N in float32.",
    "The kernel is the released default: polynomial of order 1, not normalised, so that sigma_f is not used.",
)
X = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
"""With a noise of 1, Sigma = X'X + I = ((2, 0, 1), (0, 2, 1), (1, 1, 3))."""
ALL, EQUAL = np.arange(3), np.full(3, 1 / 3)


def test_the_choice_by_hand():
    """sum_i p_i Sigma_ik / sqrt(Sigma_kk): 3/3 / sqrt 2 = 0.707 twice, and 5/3 / sqrt 3 = 0.962: node 2. Given node 2,
    Sigma is ((5/3, -1/3), (-1/3, 5/3)) for the others: equal, so node 0 is next, unless its alpha is lower."""
    assert most_informative(X, 1.0, np.ones(3), EQUAL, ALL, 3) == [2, 0, 1]
    assert most_informative(X, 1.0, np.array([0.9, 1.0, 1.0]), EQUAL, ALL, 2) == [2, 1]
    assert most_informative(X, 1.0, np.array([1.0, 1.0, 0.7]), EQUAL, ALL, 1) == [0]  # 0.7 x 0.962 = 0.674 < 0.707
    assert most_informative(X, 1.0, np.ones(3), EQUAL, np.array([0, 1]), 3) == [0, 1]


def test_weights_count():
    """p = (0.9, 0.1, 0): 1.8 / sqrt 2 = 1.273, 0.2 / sqrt 2, and (0.9 + 0.1) / sqrt 3 = 0.577."""
    assert most_informative(X, 1.0, np.ones(3), np.array([0.9, 0.1, 0.0]), ALL, 1) == [0]


def test_the_choice_against_the_released_rule():
    for case in range(200):
        rng = stream(case, "case")
        count, size = int(rng.integers(1, 9)), int(rng.integers(1, 6))
        x = rng.standard_normal((3, count))
        alpha, p = rng.uniform(0.3, 1, count), rng.uniform(0.1, 1, count)
        found = most_informative(x, 0.1, alpha, p, np.arange(count), size)
        assert found == released_choice(covariance(x.tolist(), 0.1), alpha.tolist(), p.tolist(), size)


def test_residuals_by_hand():
    """Weights 1 and 3: means (1 + 9) / 4 = 2.5 and, where one change is unknown, the other alone."""
    samples = np.array([[1.0, np.nan], [3.0, 5.0]])
    np.testing.assert_allclose(residuals(samples, np.array([1.0, 3.0])), [[-1.5, 0.0], [0.5, 0.0]])
    assert residuals(np.array([[4.0]]), np.array([0.5])).tolist() == [[0]]  # one sample is its own mean
    assert residuals(np.full((2, 2), np.nan), np.ones(2)).tolist() == [[0, 0], [0, 0]]


def likelihood(x, changes, weights, noise):
    sigma = x.T @ x + noise**2 * np.eye(x.shape[1])
    inverse, (_, logdet) = np.linalg.inv(sigma), np.linalg.slogdet(sigma)
    return -0.5 * sum(w * (y @ inverse @ y + logdet) for w, y in zip(weights, changes, strict=True))


@pytest.mark.parametrize("case", range(5))
def test_the_gradient_is_that_of_the_likelihood(case):
    """Central differences of log N(y; 0, Sigma), computed with the whole matrix."""
    rng = stream(case, "case")
    x, changes, weights = rng.standard_normal((2, 4)), rng.standard_normal((3, 4)), np.array([1.0, 0.5, 0.25])
    found = gradient(x, changes, weights, 0.3)
    for i in range(2):
        for k in range(4):
            step = np.zeros_like(x)
            step[i, k] = 1e-6
            up, down = (likelihood(x + sign * step, changes, weights, 0.3) for sign in (1, -1))
            assert found[i, k] == pytest.approx(-(up - down) / 2e-6, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("case", range(3))
def test_the_fit_against_torch(case):
    """`GPR.py: Train` with torch's autograd, MultivariateNormal and Adam: the same embedding after 25 steps."""
    rng = stream(case, "case")
    x, samples, gammas = rng.standard_normal((3, 6)), rng.standard_normal((4, 6)), 0.95 ** np.arange(3, -1, -1.0)
    np.testing.assert_allclose(
        fitted(x, samples, gammas, 0.2, 25), released_fit(x, samples, gammas, 0.2, 25), rtol=1e-6
    )


def test_adams_epsilon():
    """X = 1e-8, s = 1, and no change: the gradient is X / (X^2 + 1) = 1e-8. A step of 0.01 x 1e-8 / (1e-8 + 1e-8)."""
    found = fitted(np.array([[1e-8]]), np.zeros((1, 1)), np.ones(1), 1.0, 1)
    assert found[0, 0] == pytest.approx(1e-8 - 0.005, rel=1e-9)


def test_the_fit_finds_who_changes_together():
    """Losses of nodes 0 and 1 move together, node 2 moves against them."""
    rng = stream(1, "case")
    shared = rng.standard_normal((30, 1))
    samples = np.hstack([shared, shared, -shared]) + 0.3 * rng.standard_normal((30, 3))
    x = fitted(rng.standard_normal((2, 3)), samples, np.ones(30), 0.3, 2000)
    sigma = x.T @ x
    assert sigma[0, 1] > 0.5 * sigma[0, 0] and sigma[0, 2] < -0.5 * sigma[0, 0]
