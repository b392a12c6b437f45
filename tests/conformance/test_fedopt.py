"""FedAdam, FedYogi and FedAdagrad: Algorithm 2 of Reddi et al. 2021, by hand and as plain loops."""

import numpy as np
import pytest

from fedpns_ray.core.interfaces import Nodes
from fedpns_ray.strategies.fedopt import AdagradServer, AdamServer, YogiServer

DIFFERENCES = (
    "v begins at tau^2, the least that Algorithm 2 allows (v_{-1} >= tau^2), and there is no bias "
    "correction, as in Algorithm 2.",
)
STEPS = (2.0, -1.0, 3.0)
HALVES = {"lr": 0.5, "beta1": 0.5, "tau": 1.0}
"""With them m = 0.5 * 2 = 1; 0.5 * 1 - 0.5 * 1 = 0; 0.5 * 0 + 0.5 * 3 = 1.5, and v begins at tau^2 = 1."""


def begun(server, parameters=1):
    server.begin(Nodes(np.ones(1, dtype=np.int64), np.ones(1, dtype=bool), 1, parameters=parameters))
    return server


def path(server):
    """Where a model of one parameter, from 0 on, is after each of the three steps."""
    begun(server)
    weights, seen = np.zeros(1, dtype=np.float32), []
    for step in STEPS:
        weights = server.move(weights, weights + np.float32(step))
        assert weights.dtype == np.float32
        seen.append(float(weights[0]))
    return seen


def test_adam_by_hand():
    """v = 0.75 * 1 + 0.25 * 4 = 1.75; 0.75 * 1.75 + 0.25 * 1 = 1.5625; 0.75 * 1.5625 + 0.25 * 9 = 3.421875."""
    first = 0.5 * 1 / (1.75**0.5 + 1)
    third = first + 0.5 * 1.5 / (3.421875**0.5 + 1)
    assert path(AdamServer(**HALVES, beta2=0.75)) == pytest.approx([first, first, third], rel=1e-6)


def test_yogi_by_hand():
    """v = 1 + 0.25 * 4 = 2, as 1 < 4; 2 - 0.25 * 1 = 1.75, as 2 > 1; 1.75 + 0.25 * 9 = 4, as 1.75 < 9."""
    first = 0.5 * 1 / (2**0.5 + 1)
    assert path(YogiServer(**HALVES, beta2=0.75)) == pytest.approx([first, first, first + 0.5 * 1.5 / 3], rel=1e-6)


def test_adagrad_by_hand():
    """v = 1 + 4 = 5; 5 + 1 = 6; 6 + 9 = 15. Without momentum m is Delta itself."""
    first = 0.5 * 1 / (5**0.5 + 1)
    third = first + 0.5 * 1.5 / (15**0.5 + 1)
    assert path(AdagradServer(**HALVES)) == pytest.approx([first, first, third], rel=1e-6)
    plain = np.cumsum([0.5 * step / (v**0.5 + 1) for step, v in zip(STEPS, (5, 6, 15), strict=True)])
    assert path(AdagradServer(lr=0.5, tau=1.0)) == pytest.approx(plain.tolist(), rel=1e-6)


def test_v_begins_at_tau_squared():
    """tau = 2, Delta = 0: v = 4, and beta2 v for Adam."""
    for server, v in ((AdamServer(tau=2.0, beta2=0.5), 2.0), (YogiServer(tau=2.0), 4.0), (AdagradServer(tau=2.0), 4.0)):
        begun(server).move(np.zeros(1, dtype=np.float32), np.zeros(1, dtype=np.float32))
        assert server.state_dict()["v"].tolist() == [v]
    still = begun(YogiServer(tau=2.0))
    still.move(np.zeros(1, dtype=np.float32), np.full(1, 2, dtype=np.float32))
    assert still.state_dict()["v"].tolist() == [4.0]  # v = Delta^2: its sign is 0


def test_defaults():
    """beta1 = 0.9, beta2 = 0.99, tau = 1e-3 (the paper's; Adagrad without momentum); eta is tuned there."""
    for kind in (AdamServer, YogiServer):
        assert (kind().lr, kind().beta1, kind().beta2, kind().tau) == (0.01, 0.9, 0.99, 1e-3)
    assert (AdagradServer().lr, AdagradServer().beta1, AdagradServer().tau) == (0.1, 0.0, 1e-3)


def next_v(name, v, delta, beta2):
    """Algorithm 2, the three variants."""
    square = delta * delta
    if name == "adam":
        return beta2 * v + (1 - beta2) * square
    if name == "yogi":
        sign = 0 if v == square else 1 if v > square else -1
        return v - (1 - beta2) * square * sign
    return v + square


@pytest.mark.parametrize("kind", [AdamServer, YogiServer, AdagradServer])
def test_the_same_path_as_a_plain_loop(kind):
    rng = np.random.default_rng(4)
    for _ in range(150):
        settings = {"lr": rng.uniform(0.01, 1), "beta1": rng.uniform(0, 0.95), "tau": rng.uniform(0.01, 1)}
        beta2 = rng.uniform(0, 0.99)
        server = begun(kind(**settings, **({} if kind is AdagradServer else {"beta2": beta2})), 2)
        w, x, m, v = np.zeros(2, dtype=np.float32), [0.0, 0.0], [0.0, 0.0], [settings["tau"] ** 2] * 2
        for delta in rng.standard_normal((5, 2)):
            w = server.move(w, (w + delta).astype(np.float32))
            for k in range(2):
                m[k] = settings["beta1"] * m[k] + (1 - settings["beta1"]) * delta[k]
                v[k] = next_v(server.name, v[k], delta[k], beta2)
                x[k] += settings["lr"] * m[k] / (v[k] ** 0.5 + settings["tau"])
        np.testing.assert_allclose(w, x, rtol=1e-4, atol=1e-5)
