"""SCAFFOLD: Algorithm 1, option II, of Karimireddy et al. 2020, by hand and by oracle.

A whole run against a plain loop with autograd is in tests/strategies/test_scaffold.py.
"""

import numpy as np

from fedpns_ray.core.interfaces import Nodes, Updates
from fedpns_ray.strategies.scaffold import ControlVariateObjective
from tests.conformance.oracles.scaffold import option_two

DIFFERENCES = (
    "The global step size eta_g is 1; another one is the server's (`--server momentum --server.momentum 0`).",
    "A node that trained and whose update is not sent keeps the c_i that it had; the paper has no such nodes.",
    "c is summed in float64, the c_i are kept in float32.",
)


def begun(count, parameters):
    objective = ControlVariateObjective()
    objective.begin(Nodes(np.ones(count, dtype=np.int64), np.ones(count, dtype=bool), 2, parameters=parameters))
    return objective


def test_by_hand():
    """Two of four nodes, one parameter, eta_l = 0.5. Node 0 takes 2 steps and moves by -3, node 1 takes 4 by +1.

    c = 0.5; c_0 = 2, c_1 = 0. Line 10: the shift c - c_i is -1.5 and 0.5. Line 12, option II: (x - y) / (K eta_l) is
    3 / 1 = 3 and -1 / 2 = -0.5; c_0 <- 2 - 0.5 + 3 = 4.5, c_1 <- 0 - 0.5 - 0.5 = -1. Line 17: c <- 0.5 + (2.5 - 1) / 4.
    """
    objective = begun(4, 1)
    assert objective.broadcast().tolist() == [0.0]
    objective.load_state_dict({"c": np.array([0.5])})
    states, shared = np.array([[2], [0]], dtype=np.float32), objective.broadcast()
    assert objective.shift(states, shared).tolist() == [[-1.5], [0.5]]
    moved = np.array([[-3], [1]], dtype=np.float32)
    updates = Updates((0, 1), moved, np.ones(2), np.ones(2, int), np.array([2, 4]), 0.5)
    after = objective.next_states(states, shared, updates)
    assert after.tolist() == [[4.5], [-1.0]] and after.dtype == np.float32
    objective.learn(states, after)
    assert objective.broadcast().tolist() == [0.875] and objective.broadcast().dtype == np.float32


def test_what_travels():
    """c goes down with the model, the change of c_i up with the update: one vector each (Section 4)."""
    assert ControlVariateObjective.sent_along == 1
    assert ControlVariateObjective.keeps_states is ControlVariateObjective.needs_plain_steps is True


def test_the_same_control_variates_as_a_plain_loop():
    """200 random runs of 4 rounds with made-up movements."""
    rng = np.random.default_rng(6)
    for _ in range(200):
        count, n, lr = int(rng.integers(1, 6)), int(rng.integers(1, 4)), float(rng.uniform(0.01, 1))
        objective, own, rounds = begun(count, n), np.zeros((count, n), dtype=np.float32), []
        for _ in range(4):
            drawn = sorted(rng.choice(count, int(rng.integers(1, count + 1)), replace=False).tolist())
            moves, steps = rng.standard_normal((len(drawn), n)).astype(np.float32), rng.integers(1, 9, len(drawn))
            rounds.append((drawn, moves.tolist(), steps.tolist()))
            m = len(drawn)
            updates = Updates(tuple(drawn), moves, np.ones(m), np.ones(m, int), steps, lr)
            after = objective.next_states(own[drawn], objective.broadcast(), updates)
            objective.learn(own[drawn], after)
            own[drawn] = after
        c, states = option_two(count, n, lr, rounds)
        scale = 1 + np.abs(states).max()
        np.testing.assert_allclose(objective.state_dict()["c"], c, atol=1e-5 * scale)
        np.testing.assert_allclose(own, states, atol=1e-5 * scale)
        np.testing.assert_allclose(own.mean(axis=0), c, atol=1e-5 * scale)  # c stays the mean of all c_i
