"""Gram matrices: exact where they say so, whatever the sizes of the numbers."""

import warnings
from fractions import Fraction

import numpy as np
import pytest

from fedpns_ray.core.gram import BLOCK, GROUP, exact_gram_matrix, gram_matrix


def by_python(vectors):
    """Every float32 is a whole multiple of 2^-149."""
    rows = [[int(x) for x in row] for row in np.ldexp(vectors.astype(np.float64), 149)]
    return [[sum(x * y for x, y in zip(a, b, strict=True)) for b in rows] for a in rows]


def made(kind, m, n):
    rng = np.random.default_rng(n)
    vectors = rng.standard_normal((m, n)).astype(np.float32)
    if kind == "all sizes":
        vectors *= np.float32(10) ** rng.integers(-35, 35, (m, n)).astype(np.float32)
    if kind == "extremes":
        vectors[:, 0], vectors[:, 1] = np.float32(1e-45), np.float32(-3.4e38)
    if kind == "alike":
        vectors[1], vectors[2], vectors[3] = vectors[0], 0, -vectors[0]
    return vectors


@pytest.mark.parametrize("kind", ["plain", "all sizes", "extremes", "alike"])
@pytest.mark.parametrize(("m", "n"), [(4, 2), (5, GROUP + 1), (70, 30), (4, 9000)])
def test_nothing_is_rounded(kind, m, n):
    vectors = made(kind, m, n)
    found, expected = exact_gram_matrix(vectors), by_python(vectors)
    scale = Fraction(int(found[0, 0]), expected[0][0])
    assert all(Fraction(int(found[i, j])) == scale * expected[i][j] for i in range(m) for j in range(m))
    assert (scale.numerator & (scale.numerator - 1), scale.denominator & (scale.denominator - 1)) == (0, 0)


def test_all_blocks_are_summed_in_float64():
    n = 2 * BLOCK + 17
    vectors = np.full((2, n), np.float32(0.1))
    vectors[1] = 1
    found = gram_matrix(vectors)
    assert found[0, 1] == pytest.approx(float(np.float32(0.1)) * n, rel=1e-13)
    assert np.array_equal(found, found.T)


def test_arrays_from_the_object_store_are_read_only():
    vectors = made("plain", 3, 50)
    vectors.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gram_matrix(vectors).shape == exact_gram_matrix(vectors).shape == (3, 3)
