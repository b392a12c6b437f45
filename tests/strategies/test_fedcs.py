"""FedCS: the greedy selection of Nishio and Yonetani 2019, by hand; and BC and BC-BN2 of Amiri et al. 2021."""

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core.devices import Resources
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.bn2 import BestChannelLargestNormSelection, BestChannelSelection
from fedpns_ray.strategies.fedcs import DeadlineSelection, greedy
from tests.strategies.made import Asked, devices, nodes, updates


def test_greedy_by_hand():
    """Training takes 5, 1 and 2 s, an upload 1 s. First node 1 (adds 2), then 2 (trained meanwhile: adds 1), then 0,
    which adds 1 + (5 - 3) = 3: the round would take 6 s."""
    train, upload = np.array([5.0, 1, 2]), np.ones(3)
    assert greedy(train, upload, 6.1) == [1, 2, 0]
    assert greedy(train, upload, 6.0) == [1, 2]  # strictly before the deadline
    assert greedy(train, upload, 3.0) == [1]
    assert greedy(train, upload, 2.0) == []


def test_greedy_passes_over_a_node_that_does_not_fit():
    """Adds 1, then 1.5; node 1 would add 4, which is too long. (Uploads of 1, 4 and 1.5 s, nothing to train.)"""
    assert greedy(np.array([0.0, 0, 0]), np.array([1.0, 4, 1.5]), 3.0) == [0, 2]
    assert greedy(np.array([1.0]), np.array([1.0]), 5.0) == [0]
    assert greedy(np.full(4, 1.0), np.full(4, 1.0), 4.5) == [0, 1, 2]  # equal nodes: the lower id


def test_the_asked_are_planned_for():
    model = devices([100, 50, 20, 10], [1000] * 4)  # 1, 2, 5, 10 s of training; 1 s an upload
    selection = DeadlineSelection(choices=4, deadline=8)
    selection.begin(nodes(4, 2, model=model))
    assert selection.draw(stream(1, "draw", 1), Asked(resources=model.resources(1))) == [0, 1, 2]
    some = DeadlineSelection(choices=2, deadline=100)
    some.begin(nodes(4, 2, model=model))
    drawn = [tuple(some.draw(stream(1, "draw", t), Asked(resources=model.resources(t)))) for t in range(40)]
    assert {len(set(d)) for d in drawn} == {2} and len(set(drawn)) > 3


def test_the_default_deadline_and_impossible_ones():
    model = devices([100, 50, 20], [1000] * 3)
    selection = DeadlineSelection(choices=3)
    selection.begin(nodes(3, 2, model=model))
    assert selection._deadline == 2 + 2 * 1  # the median node trains 2 s; two uploads of 1 s
    with pytest.raises(InputError, match="deadline: 1.5 is not allowed; the fastest node needs 2 s"):
        DeadlineSelection(choices=3, deadline=1.5).begin(nodes(3, 2, model=model))
    with pytest.raises(InputError, match="devices: off is not allowed; deadline needs a device model"):
        DeadlineSelection().begin(nodes(30, 2))
    with pytest.raises(InputError, match="choices: 20 is not allowed; there are 3 nodes"):
        DeadlineSelection().begin(nodes(3, 2, model=model))


def test_rounds_keep_the_deadline():
    """Uploads are planned one after another and happen side by side: what fits the plan fits the round."""
    e = Experiment(
        strategy="fedcs", nodes=30, samples_per_node=20, epochs=1, rounds=10, deadline=0.5, devices="log-normal"
    )
    records = run(e).records
    assert all(record["simulated_seconds"] < 0.5 for record in records)
    assert len({len(record["drawn"]) for record in records}) > 1
    slower = run(e.but(strategy="fedavg")).records
    assert sum(r["simulated_seconds"] for r in slower) > sum(r["simulated_seconds"] for r in records)


def test_best_channels():
    gain = np.array([0.5, 2.0, 0.1, 2.0, 1.0])
    probe = Asked(resources=Resources(np.ones(5), np.ones(5), gain))
    model = devices([1] * 5, [1] * 5, fading=True)
    best = BestChannelSelection()
    best.begin(nodes(5, 2, model=model))
    assert best.draw(None, probe) == [1, 3]
    both = BestChannelLargestNormSelection(candidates=3)
    both.begin(nodes(5, 2, model=model))
    assert both.draw(None, probe) == [1, 3, 4]
    sent = both.sift(None, updates([[1, 0], [0, 3], [2, 0]], ids=(1, 3, 4)))
    assert sent.node_ids == (3, 4)
    assert both.sift(None, updates(np.zeros((3, 2)), ids=(1, 3, 4))).node_ids == (1, 3)


def test_channels_rotate_and_must_fade():
    e = Experiment(strategy="bc", nodes=10, samples_per_node=20, epochs=1, rounds=20, devices="log-normal")
    counts = run(e).summary["nodes"]["drawn"]
    assert sum(counts) == 40 and max(counts) < 14
    with pytest.raises(
        InputError, match="device_fading: 'none' is not allowed; best-channel chooses by how channels fade"
    ):
        run(e.but(device_fading="none"))
    with pytest.raises(InputError, match="devices: off is not allowed; best-channel-largest-norm needs"):
        run(Experiment(strategy="bc-bn2", nodes=30))
