"""The theory from records: against the definitions, on numbers small enough to see."""

import math

import numpy as np
import pytest

from fedpns_ray import Experiment, run
from fedpns_ray.records.record import Record
from fedpns_ray.reporting.theory import delta, gammas, theory

RECORDS = [
    Record(
        drawn=[0, 2],
        gradient_norms=[3.0, 4.0],
        gradient_norm_of_mean=2.5,
        probability=[0.25] * 4,
        expectation=1.0,
        expectation_after=2.0,
    ),
    Record(
        drawn=[0, 1, 2],
        returned=[1, 2],
        gradient_norms=[1.0, 5.0],
        gradient_norm_of_mean=2.0,
        probability=[0.5, 0.25, 0.0, 0.25],
    ),
    Record(drawn=[3], returned=[]),
]


def test_delta_is_assumption_2():
    assert delta(RECORDS[0]) == pytest.approx(math.sqrt((9 + 16) / 2) / 2.5)
    assert math.isnan(delta(RECORDS[2])) and math.isnan(delta(Record(gradient_norms=[1.0], gradient_norm_of_mean=0.0)))


def test_gamma_is_the_largest_norm_of_a_node_and_unknown_for_one_that_never_returned():
    assert gammas(RECORDS, 4)[:3].tolist() == [3.0, 1.0, 5.0] and math.isnan(gammas(RECORDS, 4)[3])


def test_remark_1_weighs_known_nodes_by_their_probability():
    found = theory(RECORDS, 4)
    assert found["gamma_mean"].tolist() == [3.0] * 3
    assert found["gamma_selected"][0] == pytest.approx(3.0)  # uniform: the mean
    assert found["gamma_selected"][1] == pytest.approx((0.5 * 3 + 0.25 * 1) / 0.75)
    assert math.isnan(found["gamma_selected"][2])
    assert found["expectation_after"][0] == 2.0 and np.isnan(found["expectation"][1:]).all()


def test_a_run_without_rounds_or_gradients_has_no_theory():
    assert all(len(values) == 0 for values in theory([], 3).values())
    assert np.isnan(theory([Record(drawn=[0])], 3)["gamma_mean"]).all()


def test_weight_divergence_is_zero_where_the_one_node_is_the_whole_population():
    """(9): one node that holds everything and takes whole-batch steps is the centralised sequence itself."""
    whole = {"strategy": "fedavg", "nodes": 1, "fraction": 1, "sigma": 1, "batch_size": 1000, "epochs": 3, "rounds": 3}
    alone = run(Experiment(**whole, centralised=True))
    mini = run(Experiment(**whole | {"batch_size": 20}, centralised=True))
    exact, noisy = max(alone.rounds["weight_divergence"]), min(mini.rounds["weight_divergence"])
    assert exact < 1e-5 and noisy > 20 * exact  # float32 rounding alone, and the noise of mini-batches
    off = run(Experiment(**whole))
    assert (
        off.summary["weights_sha256"] == alone.summary["weights_sha256"] and "weight_divergence" not in off.records[0]
    )


def test_weight_divergence_grows_with_heterogeneity(mnist):
    """Theorem 1: with q_dif."""
    small = {"strategy": "fedavg", "dataset": "mnist", "model": "mlr", "samples_per_node": 50, "rounds": 5}
    apart = {rho: run(Experiment(**small, sigma=0, rho=rho, centralised=True)).rounds for rho in (1, 10)}
    assert apart[1]["weight_divergence"].mean() > 2 * apart[10]["weight_divergence"].mean()
