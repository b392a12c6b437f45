"""Algorithm 1 by Gram matrix makes the decisions of the transcription, on thousands of cases."""

import hashlib

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fedpns_ray.core.interfaces import Updates
from fedpns_ray.strategies.optimal_aggregation import (
    CHUNK,
    OptimalAggregation,
    check_expectation,
    exact_gram_matrix,
    gram_matrix,
    optimal_subset,
)
from tests.strategies.brute_force import optimal_aggregation as transcription

whole_numbers = st.integers(-3, 3).map(float)
scales = st.sampled_from([1e-20, 1e-6, 1e-2, 1e2, 1e6, 1e15])
float32 = st.floats(-4, 4, width=32).map(float)


@st.composite
def rounds_of_updates(draw):
    """Small whole numbers make ties, zeros, duplicates and opposites common; the rest makes them rare."""
    m, n = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    entries = draw(st.sampled_from([whole_numbers, float32]))
    rows = draw(st.lists(st.lists(entries, min_size=n, max_size=n), min_size=m, max_size=m))
    for _ in range(draw(st.integers(0, 2))):
        source, target = draw(st.integers(0, m - 1)), draw(st.integers(0, m - 1))
        factor = draw(st.sampled_from([1.0, -1.0, 0.0]) | scales)
        rows[target] = [factor * x for x in rows[source]]
    return np.array(rows, dtype=np.float32)


def pretended_loss(salt):
    """A loss that is some fixed function of the set, as a model's would be."""

    def loss(kept):
        return hashlib.sha256(f"{salt}{sorted(kept)}".encode()).digest()[0] % 4

    return loss


@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds_of_updates(), st.integers(0, 50), st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9, 1.0]))
@example(np.zeros((4, 3), dtype=np.float32), 0, 0.5)
@example(np.ones((1, 3), dtype=np.float32), 0, 0.7)
@example(np.array([[1, 0], [-1, 0]], dtype=np.float32), 1, 0.1)
@example(np.array([[1, 0], [1, 0], [-1, 0], [-1, 0]], dtype=np.float32), 3, 0.1)
def test_same_decisions_as_the_transcription(deltas, salt, v):
    expected = transcription(deltas.tolist(), pretended_loss(salt), v)
    decision = optimal_subset(gram_matrix(deltas), pretended_loss(salt), v, exact=lambda: exact_gram_matrix(deltas))
    assert (decision.kept, decision.labelled, decision.excluded) == expected


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds_of_updates(), st.floats(1e-6, 1e6))
def test_a_common_scale_changes_no_decision(deltas, scale):
    """So delta_i may stand for the gradient -delta_i / eta."""
    gram = gram_matrix(deltas)
    loss = pretended_loss(1)
    exact = lambda: exact_gram_matrix(deltas)  # noqa: E731
    assert optimal_subset(gram, loss, exact=exact)[:3] == optimal_subset(gram * scale, loss, exact=exact)[:3]


def test_expectation_is_that_of_lemma_1():
    rng = np.random.default_rng(0)
    g = rng.standard_normal((7, 100)).astype(np.float32).astype(float)
    found = check_expectation(gram_matrix(g.astype(np.float32)))
    assert found.current == pytest.approx(np.mean([g.mean(0) @ row for row in g]))
    for k in range(7):
        rest = np.delete(g, k, axis=0)
        assert found.without[k] == pytest.approx(np.mean([rest.mean(0) @ row for row in rest]))


def test_gram_matrix_sums_in_float64_over_all_chunks():
    n = 2 * CHUNK + 17
    deltas = np.full((2, n), np.float32(0.1))
    deltas[1] = 1
    exact = float(np.float32(0.1)) * n
    assert gram_matrix(deltas)[0, 1] == pytest.approx(exact, rel=1e-13)
    assert np.array_equal(gram_matrix(deltas), gram_matrix(deltas).T)


def test_floor_ten_nodes_never_fall_below_seven():
    deltas = np.array([[1.0]] * 5 + [[-1.0]] * 5, dtype=np.float32) * np.arange(1, 11, dtype=np.float32)[:, None]
    decision = optimal_subset(gram_matrix(deltas), lambda kept: 0.0, v=0.7)
    assert len(decision.kept) == 7 and len(decision.excluded) == 3 == len(decision.labelled)
    assert len(optimal_subset(gram_matrix(deltas), lambda kept: 0.0, v=8).kept) == 8  # the released code's


def test_the_node_that_check_loss_keeps_is_labelled_but_not_excluded():
    deltas = np.array([[1.0], [1.0], [1.0], [-5.0]], dtype=np.float32)
    deltas[3] = -1
    decision = optimal_subset(gram_matrix(deltas), lambda kept: -len(kept), v=0.1)
    assert decision.labelled == [3] and decision.excluded == [] and decision.kept == [0, 1, 2, 3]


def _updates(deltas, steps=10, lr=0.01):
    m = len(deltas)
    return Updates(tuple(range(10, 10 + m)), deltas, np.zeros(m), np.full(m, 200), np.full(m, steps), lr)


def test_combine_reports_node_ids_and_averages_what_is_kept():
    deltas = np.array([[1.0, 1], [1, 0.5], [0.5, 1], [-1, -1]], dtype=np.float32)
    weights = np.array([0.5, 0.5], dtype=np.float32)
    asked = []

    def check_loss(candidate, *, samples, first):
        asked.append((samples, first))
        return float(((candidate - 2) ** 2).sum())

    outcome = OptimalAggregation(v=0.75).combine(weights, _updates(deltas), check_loss)
    assert outcome.excluded == (13,) and outcome.aggregated == (10, 11, 12) and 13 in outcome.labelled
    np.testing.assert_allclose(outcome.weights, weights + deltas[:3].mean(0), rtol=1e-6)
    assert set(asked) == {(128, False)}
    assert outcome.notes["expectation_after"] > outcome.notes["expectation"]


def test_released_variant_sums_and_rounds():
    deltas = np.array([[0.1], [0.1], [-0.05]], dtype=np.float32)
    gram = gram_matrix(deltas) / (10 * 0.01) ** 2
    found = check_expectation(gram, "sum")
    assert found.current == round(1.5**2 / 3, 3) and found.without[2] == 2.0
    outcome = OptimalAggregation(v=0.1, expectation="sum", check_draw="first", check_samples=2000).combine(
        np.zeros(1, dtype=np.float32),
        _updates(deltas),
        lambda w, *, samples, first: 0.0 if first and samples == 2000 else 9,
    )
    assert outcome.excluded == (12,)


def test_a_diverged_node_does_not_raise():
    deltas = np.array([[1.0], [np.nan], [1.0]], dtype=np.float32)
    outcome = OptimalAggregation().combine(np.zeros(1, dtype=np.float32), _updates(deltas), lambda w, **_: 0.0)
    assert outcome.excluded == ()
