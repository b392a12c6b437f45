"""The field's strategies on two actors: what they ask of workers gives the bits of one process."""

import pytest

from fedpns_ray import run
from tests.runtime.test_same_bits import Layout, assert_same
from tests.strategies.test_all import experiment

CASES = {
    "power-of-choice": {"variant": "cpow-d", "probe_samples": 5, "objective": "proximal", "aggregation": "adaptive"},
    "oort": {"objective": "proximal", "aggregation": "all-nodes"},
    "fedcor": {"warmup": 2, "availability": "diurnal", "day": 4, "coupling": "by-label"},
    "shapley": {"aggregation": "optimal", "objective": "importance-sampled"},
}
"""Probes of drawn samples, of whoever is there and in the same round again; epochs and samples by node, losses,
simulated seconds, models that the server evaluates: all that crosses to workers and back."""


@pytest.mark.parametrize("strategy", CASES)
def test_two_actors(cluster, strategy):
    e = experiment(strategy, rounds=4, size_spread=0.5, **CASES[strategy])
    assert_same(run(e, layout=Layout(actors=2)), run(e))
