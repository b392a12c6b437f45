"""How a round's work is shared out: evenly, whatever the sizes; to its home, where nodes have one."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpns_ray.runtime.ray_executor import TEST_COST, RayExecutor
from fedpns_ray.training import TEST_CHUNK

WORKER = SimpleNamespace(test_size=10_000, test_chunks=20)


def executor(costs, nodes_per_actor=None):
    return RayExecutor(None, WORKER, {}, np.array(costs, dtype=float), nodes_per_actor)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(1, 6), st.integers(0, 20))
def test_everything_is_dealt_once_and_evenly(costs, actors, chunks):
    shares = executor(costs)._deal(range(len(costs)), range(chunks), range(actors))
    assert sorted(node for share in shares.values() for node in share.node_ids) == list(range(len(costs)))
    assert sorted(chunk for share in shares.values() for chunk in share.chunks) == list(range(chunks))
    loads = [shares[k].load if k in shares else 0 for k in range(actors)]
    assert max(loads) - min(loads) <= max(*costs, TEST_CHUNK * TEST_COST, 0)  # no more than one piece apart


def test_tests_go_to_whoever_trains_less():
    shares = executor([1000, 200])._deal([0, 1], range(8), [0, 1])
    assert shares[0].node_ids == [0] and shares[0].chunks == [] and len(shares[1].chunks) == 8


@pytest.mark.parametrize("present", [(0, 1, 2), (0, 2)])
def test_nodes_have_homes_and_find_shelter_when_theirs_is_gone(present):
    shares = executor([200] * 6, nodes_per_actor=2)._deal([0, 1, 2, 5], (), present)
    assert {0, 1} <= set(shares[0].node_ids) and 5 in shares[2].node_ids
    assert (shares[1].node_ids == [2]) if 1 in present else (2 in shares[2].node_ids)
