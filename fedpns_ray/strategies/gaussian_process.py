"""The Gaussian process of FedCor: loss changes with covariance Sigma = X'X + s^2 I, its fit, and the greedy choice.

Everything is computed in the D dimensions of the embedding, by C = X X' + s^2 I: X Sigma^-1 = C^-1 X, and Sigma^-1 y =
(y - X' C^-1 X y) / s^2. So a fit costs D^2 N per step, not N^3; and no product goes through BLAS, whose bits depend on
the number of threads (a matrix of at most 64 x 64 is inverted by one).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
LEARNING_RATE, BETA1, BETA2, EPSILON = 0.01, 0.9, 0.999, 1e-8
"""Adam, as in the released code."""


def residuals(samples: Matrix, weights: NDArray[np.float64]) -> Matrix:
    """Loss changes minus their weighted means over samples, a row per sample; 0 where a change is unknown (NaN)."""
    known = np.isfinite(samples)
    share = weights[:, None] * known
    total = share.sum(axis=0)
    mean = np.divide(
        (share * np.where(known, samples, 0.0)).sum(axis=0), total, out=np.zeros_like(total), where=total > 0
    )
    return np.where(known, samples - mean, 0.0)


def gradient(embedding: Matrix, changes: Matrix, weights: NDArray[np.float64], noise: float) -> Matrix:
    """The gradient, with respect to X, of minus the weighted log likelihood of the (centred) changes.

    - sum_e w_e log N(y_e; 0, Sigma) has the gradient X M with M = sum_e w_e (Sigma^-1 - a_e a_e'), a_e = Sigma^-1 y_e.
    """
    x, s2 = embedding, noise**2
    inverse = np.linalg.inv(np.einsum("ik,jk->ij", x, x) + s2 * np.eye(len(x)))
    x_sigma_inverse = np.einsum("ij,jk->ik", inverse, x)
    x_a = np.einsum("ij,ej->ie", inverse, np.einsum("ik,ek->ei", x, changes))
    a = (changes - np.einsum("ik,ie->ek", x, x_a)) / s2
    return weights.sum() * x_sigma_inverse - np.einsum("e,ie,ek->ik", weights, x_a, a)


def fitted(embedding: Matrix, samples: Matrix, weights: NDArray[np.float64], noise: float, steps: int) -> Matrix:
    """X after so many steps of Adam on the likelihood, from the embedding before."""
    x, changes = embedding.copy(), residuals(samples, weights)
    first, second = np.zeros_like(x), np.zeros_like(x)
    for step in range(1, steps + 1):
        g = gradient(x, changes, weights, noise)
        first, second = BETA1 * first + (1 - BETA1) * g, BETA2 * second + (1 - BETA2) * g * g
        x = x - LEARNING_RATE * (first / (1 - BETA1**step)) / (np.sqrt(second / (1 - BETA2**step)) + EPSILON)
    return x


def most_informative(
    embedding: Matrix,
    noise: float,
    alpha: NDArray[np.float64],
    p: NDArray[np.float64],
    among: NDArray[np.int64],
    size: int,
) -> list[int]:
    """`size` of these nodes: always the one of highest alpha_k sum_i p_i Sigma_ik / sqrt(Sigma_kk); a tie: the first.

    After a pick k, Sigma becomes Sigma - Sigma_.k Sigma_k. / Sigma_kk. Only Sigma p, the diagonal and one column are
    ever held: N times D numbers, not N^2.
    """
    s2, count = noise**2, embedding.shape[1]
    weighted = np.einsum("ik,i->k", embedding, np.einsum("ik,k->i", embedding, p)) + s2 * p
    variance = np.einsum("ik,ik->k", embedding, embedding) + s2
    left, picked, known = [int(k) for k in among], list[int](), list[NDArray[np.float64]]()
    while left and len(picked) < size:
        score = alpha[left] * weighted[left] / np.sqrt(np.maximum(variance[left], np.finfo(float).tiny))
        k = left.pop(int(np.argmax(score)))
        column = np.einsum("ik,i->k", embedding, embedding[:, k]) + s2 * (np.arange(count) == k)
        for part in known:
            column = column - part * part[k]
        part = column / np.sqrt(max(column[k], np.finfo(float).tiny))
        weighted, variance = weighted - part * np.einsum("k,k->", part, p), variance - part * part
        known.append(part)
        picked.append(k)
    return picked
