"""FedAvgM: Hsu et al. 2019, by hand and as a plain loop."""

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Nodes
from fedpns_ray.strategies.fedavgm import MomentumServer

DIFFERENCES = ()


def begun(parameters=1, **settings):
    server = MomentumServer(**settings)
    server.begin(Nodes(np.ones(1, dtype=np.int64), np.ones(1, dtype=bool), 1, parameters=parameters))
    return server


def test_by_hand():
    """v <- beta v + Delta, w <- w + v (with eta before v). Delta = 2, -1, 3; beta = eta = 0.5: v = 2;
    0.5 x 2 - 1 = 0; 0 + 3 = 3, so w = 1, 1, 2.5."""
    server, w, seen = begun(lr=0.5, momentum=0.5), np.zeros(1, dtype=np.float32), []
    for delta in (2.0, -1.0, 3.0):
        w = server.move(w, w + np.float32(delta))
        seen.append(float(w[0]))
    assert seen == [1.0, 1.0, 2.5] and w.dtype == np.float32


def test_defaults():
    """beta = 0.9 is the paper's; eta = 1 makes beta = 0 FedAvg."""
    assert (MomentumServer().lr, MomentumServer().momentum) == (1.0, 0.9)
    assert begun(momentum=0).move(np.array([1], dtype=np.float32), np.array([4], dtype=np.float32)).tolist() == [4]


@pytest.mark.parametrize("seed", range(4))
def test_the_same_path_as_a_plain_loop(seed):
    """50 random runs of 6 rounds: w_T = w_0 + eta x the sum over t, and over s <= t, of beta^(t-s) Delta_s."""
    rng = np.random.default_rng(seed)
    for _ in range(50):
        eta, beta = float(rng.uniform(0.1, 2)), float(rng.uniform(0, 0.99))
        server, w = begun(2, lr=eta, momentum=beta), np.zeros(2, dtype=np.float32)
        deltas = rng.standard_normal((6, 2))
        for delta in deltas:
            w = server.move(w, (w + delta).astype(np.float32))
        expected = [eta * sum(beta ** (t - s) * deltas[s][k] for t in range(6) for s in range(t + 1)) for k in range(2)]
        np.testing.assert_allclose(w, expected, rtol=1e-4, atol=1e-4)
