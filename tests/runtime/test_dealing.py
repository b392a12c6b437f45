"""How a round's work is shared out: evenly, whatever the sizes; to its home, where nodes have one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpns_ray.core.testing import TEST_CHUNK
from fedpns_ray.runtime.dealer import TEST_COST, Dealer, Share


def dealer(costs, nodes_per_actor=None):
    return Dealer(None, None, np.array(costs, dtype=float), nodes_per_actor)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(1, 6), st.integers(0, 20))
def test_everything_is_dealt_once_and_evenly(costs, actors, chunks):
    shares = dealer(costs).deal(Share(train=range(len(costs)), test=range(chunks)), range(actors))
    assert sorted(node for share in shares.values() for node in share.train) == list(range(len(costs)))
    assert sorted(chunk for share in shares.values() for chunk in share.test) == list(range(chunks))
    loads = [shares[k].load if k in shares else 0 for k in range(actors)]
    assert max(loads) - min(loads) <= max(*costs, TEST_CHUNK * TEST_COST, 0)  # no more than one piece apart


def test_tests_go_to_whoever_trains_less():
    shares = dealer([1000, 200]).deal(Share(train=[0, 1], test=range(8)), [0, 1])
    assert shares[0].train == [0] and shares[0].test == [] and len(shares[1].test) == 8


@pytest.mark.parametrize("present", [(0, 1, 2), (0, 2)])
def test_nodes_have_homes_and_find_shelter_when_theirs_is_gone(present):
    shares = dealer([200] * 6, nodes_per_actor=2).deal(Share(train=[0, 1, 2, 5]), present)
    assert {0, 1} <= set(shares[0].train) and 5 in shares[2].train
    assert (shares[1].train == [2]) if 1 in present else (2 in shares[2].train)
