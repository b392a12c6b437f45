"""BN2, BC and BC-BN2: Section III of Amiri et al. 2021, and Section V-D of the FedPNS paper."""

import numpy as np
import pytest

from fedpns_ray import InputError
from fedpns_ray.core.devices import Resources
from fedpns_ray.strategies.bn2 import BestChannelLargestNormSelection, BestChannelSelection, LargestNormSelection
from tests.strategies.made import Asked, devices, nodes, updates

DIFFERENCES = (
    "BN2 sends the |S_t| largest of |M| updates, as the FedPNS paper says; its released code takes the first 10 of 20 "
    "nodes without sorting them by norm.",
    "Every update is sent in full; Amiri et al. send as many bits as the channel allows. So their BN2-C, which ranks "
    "by the norm of what the channel leaves of an update, would be BN2 here.",
    "BC-BN2: only the K_c nodes with the best channels train; in the paper every node trains.",
)
FADING = devices([1] * 5, [1] * 5, fading=True)
GAIN = np.array([0.5, 2.0, 0.1, 2.0, 1.0])


def begun(kind, count=5, per_round=2, model=FADING, **parameters):
    selection = kind(**parameters)
    selection.begin(nodes(count, per_round, model=model))
    return selection


def channels(gain):
    return Asked(resources=Resources(np.ones(len(gain)), np.ones(len(gain)), np.asarray(gain)))


def test_bn2_sends_the_largest_and_breaks_ties_by_id():
    """Norms 1, 3, 1, 2, 1 and three to send: 3, 2 and the first of the 1s."""
    selection = begun(LargestNormSelection, count=10, per_round=3, candidates=5)
    sent = selection.sift(None, updates([[1, 0], [0, 3], [1, 0], [2, 0], [-1, 0]]))
    assert sent.node_ids == (0, 1, 3) and sent.deltas.tolist() == [[1, 0], [0, 3], [2, 0]]


def test_bc_takes_the_best_channels():
    """|h|^2 = 0.5, 2, 0.1, 2, 1: the two with 2."""
    assert begun(BestChannelSelection).draw(None, channels(GAIN)) == [1, 3]


def test_bc_bn2_takes_the_largest_of_the_best_channels():
    """K_c = 3: nodes 1, 3 and 4; of their norms 1, 3 and 2 the larger two. Equal norms: the lower ids."""
    both = begun(BestChannelLargestNormSelection, candidates=3)
    assert both.draw(None, channels(GAIN)) == [1, 3, 4]
    assert both.sift(None, updates([[1, 0], [0, 3], [2, 0]], ids=(1, 3, 4))).node_ids == (3, 4)
    assert both.sift(None, updates(np.zeros((3, 2)), ids=(1, 3, 4))).node_ids == (1, 3)


def test_against_sorted_lists():
    """200 random rounds of each."""
    rng = np.random.default_rng(9)
    for _ in range(200):
        gain, deltas = rng.exponential(size=5), rng.standard_normal((4, 3))
        by_gain = sorted(range(5), key=lambda node: -gain[node])
        assert begun(BestChannelSelection).draw(None, channels(gain)) == sorted(by_gain[:2])
        both = begun(BestChannelLargestNormSelection, candidates=4)
        assert both.draw(None, channels(gain)) == sorted(by_gain[:4])
        found = updates(deltas)
        lengths = [sum(float(x) ** 2 for x in row) ** 0.5 for row in found.deltas]
        expected = tuple(sorted(sorted(range(4), key=lambda k: -lengths[k])[:2]))
        assert both.sift(None, found).node_ids == expected
        assert begun(LargestNormSelection, candidates=4).sift(None, found).node_ids == expected


def test_channels_must_fade():
    for kind in (BestChannelSelection, BestChannelLargestNormSelection):
        with pytest.raises(InputError, match="device_fading: 'none' is not allowed"):
            begun(kind, model=devices([1] * 5, [1] * 5))
        with pytest.raises(InputError, match="devices: off is not allowed"):
            begun(kind, model=None)
