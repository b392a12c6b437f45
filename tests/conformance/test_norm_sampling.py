"""Sampling by norm: the norm term of the probability of Chen et al. 2021, by hand and by enumeration."""

import itertools

import numpy as np
import pytest

from fedpns_ray.conformance.enumeration import distribution
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.norm_sampling import NormSamplingSelection
from tests.strategies.made import nodes, updates

DIFFERENCES = (
    "Only the norm term of the paper's probability is used, as the FedPNS paper refers to it; the original mixes it "
    "with the distance to the server, allocates bandwidth and quantises what is sent.",
    "|M| candidates train; in the paper every node does (set `candidates` to the number of nodes for that).",
)


def begun(count=4, per_round=2):
    selection = NormSamplingSelection(candidates=count)
    selection.begin(nodes(count, per_round))
    return selection


def test_probability_proportional_to_the_norm():
    """p_i = ||delta_i|| / sum: norms 1 and 3, so the second is sent with probability 3/4."""
    found = distribution(lambda rng: begun(2, 1).sift(rng, updates([[1, 0], [0, 3]])).node_ids)
    assert {ids: p for p, ids in found.outcomes} == pytest.approx({(0,): 0.25, (1,): 0.75})


def test_two_of_three_one_after_another():
    """100 random rounds: the probability of each pair is the sum over its two orders of p_i p_j / (1 - p_i)."""
    rng = np.random.default_rng(14)
    for _ in range(100):
        sent = updates(rng.standard_normal((3, 2)))
        lengths = [float(np.hypot(*map(float, row))) for row in sent.deltas]
        p = [x / sum(lengths) for x in lengths]
        expected = {
            (i, j): p[i] * p[j] / (1 - p[i]) + p[j] * p[i] / (1 - p[j]) for i, j in itertools.combinations(range(3), 2)
        }
        chances = dict.fromkeys(expected, 0.0)
        for chance, ids in distribution(lambda rng, sent=sent: begun(3, 2).sift(rng, sent).node_ids).outcomes:
            chances[ids] += chance
        assert chances == pytest.approx(expected)


def test_without_norms_and_with_few_nodes():
    selection = begun()
    for t in range(20):
        assert 1 in selection.sift(stream(1, "sift", t), updates([[0, 0], [0, 3], [0, 0], [0, 0]])).node_ids
        assert len(selection.sift(stream(1, "sift", t), updates(np.zeros((4, 2)))).node_ids) == 2
    assert selection.sift(stream(1, "sift", 1), updates([[1, 1]], ids=(3,))).node_ids == (3,)
    assert selection.sift(stream(1, "sift", 1), updates(np.zeros((0, 2)))).node_ids == ()
    sent = begun(1, 1).sift(stream(1, "sift", 1), updates([[1, 2]]))
    assert sent.node_ids == (0,) and sent.shares is None  # all count alike
