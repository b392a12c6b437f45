"""Analog aggregation (Zhu et al. 2020): by hand, by oracle, and with the silence and noise its channel should have."""

import math

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Nodes, Updates
from fedpns_ray.core.streams import stream
from fedpns_ray.strategies.analog import AnalogAggregation

DIFFERENCES = (
    "Gains have mean 1: there is no path loss, so that no node is left out for being far from the base station.",
    "The threshold g and the signal-to-noise ratio are both given; in the paper, the power budget ties them together.",
    "Amplitudes are the updates themselves; the paper subtracts their mean and divides by their standard deviation "
    "before sending, and undoes both at the receiver.",
    "Selections that learn from single updates still see them; over the air, the server receives only the sum.",
)

QUIET = {"snr": 200.0}


def updates(deltas, shares=None):
    m = len(deltas)
    ones = np.ones(m, dtype=np.int64)
    return Updates(tuple(range(m)), np.array(deltas, dtype=np.float32), np.ones(m), ones, ones, 0.1, shares=shares)


def begun(seed=1, **parameters):
    aggregation = AnalogAggregation(**parameters)
    aggregation.begin(Nodes(np.ones(9, dtype=np.int64), np.ones(9, dtype=bool), 3, seed=seed))
    return aggregation


def combined(aggregation, deltas, shares=None):
    weights = np.zeros(len(deltas[0]), dtype=np.float32)
    return aggregation.combine(weights, updates(deltas, shares), lambda *_: 0.0)


def test_without_fading_and_noise_it_is_the_mean():
    outcome = combined(begun(gain_threshold=0, **QUIET), [[1, 2, 3], [3, 2, 1], [2, 2, 5]])
    assert outcome.weights.tolist() == pytest.approx([2, 2, 3]) and outcome.aggregated == (0, 1, 2)
    assert outcome.notes["silent_fraction"] == 0 and outcome.notes["noise_fraction"] < 1e-9
    shared = combined(begun(gain_threshold=0, **QUIET), [[1, 2, 3], [3, 2, 1]], np.array([1.0, 0.5]))
    assert shared.weights.tolist() == pytest.approx([2.5, 3, 3.5])


def test_by_hand():
    """Two sub-channels, four entries: 0 and 2 on the first, 1 and 3 on the second. The sum is divided by all m = 2.

    A node sends where its gain, read here from its own stream, is at least the threshold. The noise has the standard
    deviation nu / sqrt(SNR) before it is divided by m: nu^2 = (4 + 16) / 2 = 10, SNR = 10, so that it is 1.
    """
    gains = [stream(7, "sub-channels", 1, node).exponential(size=2) for node in (0, 1)]
    threshold = float(np.sort(np.concatenate(gains))[1])  # the weakest of the four is silent
    ((silent, channel),) = np.argwhere(np.array(gains) < threshold).tolist()
    noise = stream(7, "receiver noise", 1).standard_normal(4)
    outcome = combined(begun(7, gain_threshold=threshold, subchannels=2, snr=10), [[2] * 4, [4] * 4])
    heard = np.full((2, 4), [[2.0], [4.0]])
    heard[silent, channel::2] = 0
    assert outcome.weights.tolist() == pytest.approx(((heard.sum(axis=0) + noise) / 2).tolist(), rel=1e-6)
    assert outcome.notes["silent_fraction"] == 0.25 and outcome.aggregated == (0, 1)


def test_one_channel_is_all_or_nothing():
    aggregation = begun(subchannels=1, gain_threshold=0.7, **QUIET)
    for t in range(1, 6):
        outcome = combined(aggregation, [[1] * 3, [10] * 3, [100] * 3])
        sends = [bool(stream(1, "sub-channels", t, node).exponential(size=1)[0] >= 0.7) for node in range(3)]
        assert outcome.aggregated == tuple(node for node in range(3) if sends[node])
        assert outcome.excluded == tuple(node for node in range(3) if not sends[node])
        expected = sum(10**node for node in range(3) if sends[node]) / 3
        assert outcome.weights.tolist() == pytest.approx([expected] * 3, rel=1e-6, abs=1e-6)


def test_silence_and_noise_are_those_of_the_channel():
    """A node is silent on 1 - exp(-g) of its sub-channels; noise of 0 dB is as strong as one node's amplitude."""
    outcome = combined(begun(gain_threshold=0.5, subchannels=20_000, snr=0), np.ones((5, 20_000)))
    assert outcome.notes["silent_fraction"] == pytest.approx(1 - np.exp(-0.5), abs=0.01)
    sum_and_noise = 5 * outcome.weights
    assert sum_and_noise.mean() == pytest.approx(5 * np.exp(-0.5), abs=0.05)
    assert sum_and_noise.var() == pytest.approx(1 + 5 * np.exp(-0.5) * (1 - np.exp(-0.5)), rel=0.05)


def test_against_plain_loops():
    """The paper's uplink, entry by entry, on 60 random rounds: who is silent where, the noise, and what is noted."""
    for case in range(60):
        rng = stream(case, "case")
        m, entries, channels = (int(rng.integers(1, high)) for high in (5, 8, 10))
        threshold, snr = float(rng.choice([0.0, 0.3, 2.0])), float(rng.choice([-10.0, 0.0, 15.0]))
        deltas = rng.standard_normal((m, entries)).astype(np.float32)
        weights, shares = rng.standard_normal(entries).astype(np.float32), rng.random(m) if case % 2 else None
        aggregation = begun(case, gain_threshold=threshold, snr=snr, subchannels=channels)
        aggregation.combine(weights, updates(deltas, shares), lambda *_: 0.0)
        outcome = aggregation.combine(weights, updates(deltas, shares), lambda *_: 0.0)  # round 2 has other gains
        used = min(channels, entries)
        gains = [stream(case, "sub-channels", 2, node).exponential(size=used) for node in range(m)]
        z = stream(case, "receiver noise", 2).standard_normal(entries)
        nu = math.sqrt(sum(float(x) ** 2 for row in deltas for x in row) / (m * entries))
        noise = [z[k] * nu / math.sqrt(10 ** (snr / 10)) / m for k in range(entries)]
        step = [
            sum(
                (1 / m if shares is None else shares[i]) * deltas[i][k]
                for i in range(m)
                if gains[i][k % used] >= threshold
            )
            for k in range(entries)
        ]
        np.testing.assert_allclose(outcome.weights, weights + step + noise, rtol=1e-5, atol=1e-6)
        sends = [any(gain >= threshold for gain in own) for own in gains]
        assert outcome.aggregated == tuple(node for node in range(m) if sends[node])
        assert outcome.excluded == tuple(node for node in range(m) if not sends[node])
        silent = sum(gain < threshold for own in gains for gain in own)
        assert outcome.notes["silent_fraction"] == pytest.approx(silent / (m * used))
        moved = math.sqrt(sum(x * x for x in step))
        expected = math.sqrt(sum(x * x for x in noise)) / moved if moved else None
        assert outcome.notes["noise_fraction"] == (expected and pytest.approx(expected))


def test_defaults():
    """g = 0.1 leaves a tenth silent, 1 - exp(-0.1); an SNR of 20 dB is noise of a tenth of a node's amplitude."""
    made = AnalogAggregation()
    assert (made.gain_threshold, made.snr, made.subchannels) == (0.1, 20.0, 1000)
    assert [(quantity.label, quantity.scale) for quantity in made.quantities] == [
        ("sub-channels left silent (%)", 100),
        ("noise against the aggregated step", 1),
    ]
