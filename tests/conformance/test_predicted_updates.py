"""Predicted updates (Chen et al. 2020): who sends, what the network learns and predicts, by hand and by oracle."""

import math

import numpy as np
import pytest

from fedpns_ray.conformance.enumeration import distribution
from fedpns_ray.core.interfaces import Nodes
from fedpns_ray.core.streams import stream
from fedpns_ray.errors import InputError
from fedpns_ray.strategies.predicted_updates import AnchoredSelection, PredictedAggregation
from tests.strategies.made import nodes, updates

DIFFERENCES = (
    "The text of the paper could not be opened, only its abstract: nodes whose updates matter most send with high "
    "probability, and networks estimate the local models of those without bandwidth. Everything below is ours.",
    "One node, that with the most samples, always sends, and its update is the input of the network.",
    "One network with one hidden layer for all nodes, and an output layer of its own for every node; updates are "
    "predicted, not models, in units of the mean norm of the round's sent updates.",
    "A node is predicted if its last prediction was at most `largest_error` off, relative to its update.",
    "Sent and predicted updates have equal weight, as in the platform's mean; no resource blocks are allocated.",
)
SIZES = [10, 30, 20, 30]
"""i* is node 1: the most samples, and the lower id of two."""


def selection(per_round=2, candidates=3, sizes=SIZES):
    made = AnchoredSelection(candidates=candidates)
    made.begin(nodes(len(sizes), per_round, sizes))
    return made


def aggregation(parameters=2, sizes=SIZES, seed=1, **more):
    made = PredictedAggregation(**more)
    made.begin(Nodes(np.array(sizes), np.zeros(len(sizes), dtype=bool), 2, parameters=parameters, seed=seed))
    return made


def combined(made, rows, ids, weights=None, **more):
    weights = np.zeros(len(rows[0]), dtype=np.float32) if weights is None else weights
    return made.combine(weights, updates(rows, ids=ids, **more), lambda *_: 0.0)


class There:
    def __init__(self, *ids):
        self.available = np.array(ids)


# --- who sends -------------------------------------------------------------------------------------------------------


def test_the_node_with_the_most_samples_always_trains_and_sends():
    for t in range(50):
        made = selection()
        drawn = made.draw(stream(t, "draw"), None)
        assert 1 in drawn and len(set(drawn)) == 3
        came = updates(stream(t, "rows").standard_normal((3, 2)), ids=sorted(drawn))
        sent = made.sift(stream(t, "sift"), came)
        assert 1 in sent.node_ids and len(sent) == 2 and list(sent.node_ids) == sorted(sent.node_ids)
    drawn = [set(selection().draw(stream(t, "draw"), None)) for t in range(300)]
    np.testing.assert_allclose(
        [sum(k in one for one in drawn) / 300 for k in range(4)], [2 / 3, 1, 2 / 3, 2 / 3], atol=0.1
    )


def test_the_others_send_by_the_norm_of_their_updates():
    """Norms 1, 3, 4 of nodes 0, 2, 3: beside i* one of them sends, with probability 1/8, 3/8, 4/8."""
    came = updates([[1, 0], [9, 9], [0, 3], [0, 4]])
    found = distribution(lambda rng: selection().sift(rng, came).node_ids)
    assert found.exact
    chances = {ids: p for p, ids in found.outcomes}
    assert chances == {(0, 1): pytest.approx(1 / 8), (1, 2): pytest.approx(3 / 8), (1, 3): pytest.approx(4 / 8)}


def test_rounds_without_it():
    """Unavailable, it is not drawn and as many train; dropped out, as many others send."""
    assert sorted(selection().draw(stream(1, "draw"), There(0, 2, 3))) == [0, 2, 3]
    assert sorted(selection().draw(stream(1, "draw"), There(1, 2))) == [1, 2]
    assert selection().sift(stream(1, "sift"), updates([[1, 0], [0, 3]], ids=(0, 2))).node_ids == (0, 2)
    assert selection().sift(stream(1, "sift"), updates(np.zeros((0, 2)))).node_ids == ()
    assert selection(per_round=1).sift(stream(1, "sift"), updates([[1.0], [2.0]])).node_ids == (1,)


# --- what the network does -------------------------------------------------------------------------------------------


def test_one_step_by_hand():
    """i* sends (3, 4), so x = (3/5, 4/5, 1); node 0 sends (0, 1), and s = (5 + 1) / 2 = 3.

    U_0 = 0 predicts 0: the error is 1, off = -(0, 1/3). A step of 1/10: U_0 = h (0, 1/30), and V stays, since U was 0.
    Then node 2 sends (2, 0) with i* as before: s = 7/2. Node 0 is predicted by s U_0 h = 7/2 (0, 1/30) h'h, which is
    averaged with the two that were sent.
    """
    made = aggregation(neurons=2, predictor_steps=1, predictor_lr=0.1, largest_error=1.0)
    inner = stream(1, "predictor").standard_normal((2, 3))
    h = np.append(np.tanh(inner @ [0.6, 0.8, 1.0]), 1.0)
    first = combined(made, [[0, 1], [3, 4]], (0, 1))
    assert first.notes == {"predicted_nodes": 0, "prediction_error": None} and first.aggregated == (0, 1)
    np.testing.assert_allclose(first.weights, [1.5, 2.5])
    np.testing.assert_allclose(made.state_dict()["outer"][0], np.outer(h, [0, 1 / 30]), rtol=1e-6)
    np.testing.assert_array_equal(made.state_dict()["inner"], inner)
    assert made.state_dict()["errors"].tolist() == [1, math.inf, math.inf, math.inf]
    second = combined(made, [[3, 4], [2, 0]], (1, 2))
    assert second.notes == {"predicted_nodes": 1, "prediction_error": None}
    np.testing.assert_allclose(second.weights, [5 / 3, (4 + 3.5 / 30 * h @ h) / 3], rtol=1e-6)
    third = combined(made, [[0, 1], [3, 4]], (0, 1))  # node 0 again: off by (0, h'h / 30 - 1/3) of 1/3
    assert third.notes["predicted_nodes"] == 1  # node 2
    assert third.notes["prediction_error"] == pytest.approx(1 - h @ h / 10)


def test_the_hidden_layer_learns_by_the_chain_rule():
    """One neuron: dE/dV = (1/m) sum_i <u_i, off_i> (1 - h^2) x, against the difference quotient of E."""
    made = aggregation(neurons=1, predictor_steps=1, predictor_lr=0.5, largest_error=0.0)
    for t in range(3):
        combined(made, stream(t, "rows").standard_normal((3, 2)), (0, 1, 2))
    before = {key: value.copy() for key, value in made.state_dict().items()}
    rows = stream(9, "rows").standard_normal((3, 2)).astype(np.float32).astype(float)
    combined(made, rows, (0, 1, 2))
    norms = np.sqrt((rows**2).sum(axis=1))
    x = np.append(rows[1] / norms[1], 1.0)

    def loss(inner):
        h = np.append(np.tanh(inner @ x), 1.0)
        return sum(((h @ before["outer"][i] - rows[i] / norms.mean()) ** 2).sum() / 2 for i in (0, 2)) / 2

    for k in range(3):
        shift = np.zeros((1, 3))
        shift[0, k] = 1e-6
        slope = (loss(before["inner"] + shift) - loss(before["inner"] - shift)) / 2e-6
        moved = made.state_dict()["inner"][0, k] - before["inner"][0, k]
        assert moved == pytest.approx(-0.5 * slope, rel=1e-4) and moved != 0


class Oracle:
    """The same method with plain loops over lists."""

    def __init__(self, count, parameters, anchor, seed, neurons, lr, steps, limit):
        self.v = stream(seed, "predictor").standard_normal((neurons, parameters + 1)).tolist()
        self.u = [[[0.0] * parameters for _ in range(neurons + 1)] for _ in range(count)]
        self.error = [math.inf] * count
        self.anchor, self.lr, self.steps, self.limit, self.size = anchor, lr, steps, limit, parameters

    def hidden(self, x):
        return [math.tanh(sum(a * b for a, b in zip(row, x, strict=True))) for row in self.v] + [1.0]

    def output(self, i, h):
        return [sum(h[d] * self.u[i][d][k] for d in range(len(h))) for k in range(self.size)]

    def step(self, sent, shares):
        """The step of a round in which these nodes send (id → update), the nodes predicted, and the mean error."""
        length = {i: math.sqrt(sum(c * c for c in row[: self.size])) for i, row in sent.items()}
        width, m = len(next(iter(sent.values()))), len(sent)
        mean = [sum(shares[i] * sent[i][k] for i in sent) for k in range(width)]
        if not length.get(self.anchor):
            return mean, 0, None
        scale = sum(length.values()) / m
        x = [c / length[self.anchor] for c in sent[self.anchor][: self.size]] + [1.0]
        h = self.hidden(x)
        predicted = [self.output(i, h) for i in range(len(self.u)) if i not in sent and self.error[i] <= self.limit]
        for k in range(self.size):
            mean[k] = (m * mean[k] + scale * sum(row[k] for row in predicted)) / (m + len(predicted))
        return mean, len(predicted), self.fit(x, {i: [c / scale for c in sent[i][: self.size]] for i in sent})

    def fit(self, x, targets):
        targets.pop(self.anchor)
        if not targets:
            return None
        seen, errors = [i for i in targets if self.error[i] < math.inf], {}
        for number in range(self.steps):
            h = self.hidden(x)
            off = {i: [o - y for o, y in zip(self.output(i, h), targets[i], strict=True)] for i in targets}
            if not number:
                for i, y in targets.items():
                    size = math.sqrt(sum(c * c for c in y))
                    errors[i] = math.sqrt(sum(c * c for c in off[i])) / size if size else math.inf
            back = [
                sum(self.u[i][d][k] * off[i][k] for i in targets for k in range(self.size)) * (1 - h[d] ** 2)
                for d in range(len(h) - 1)
            ]
            for i in targets:
                for d in range(len(h)):
                    for k in range(self.size):
                        self.u[i][d][k] -= self.lr * off[i][k] * h[d]
            for d, slope in enumerate(back):
                for k in range(len(x)):
                    self.v[d][k] -= self.lr * slope / len(targets) * x[k]
        for i, error in errors.items():
            self.error[i] = error
        finite = [errors[i] for i in seen if errors[i] < math.inf]
        return sum(finite) / len(finite) if finite else None


def test_against_plain_loops():
    """20 runs of 12 rounds, with shares, averaged buffers, nodes that send 0 and rounds without i*."""
    predicted = 0
    for case in range(20):
        rng = stream(case, "case")
        count, size, buffers = int(rng.integers(3, 7)), int(rng.integers(1, 5)), case % 2
        neurons, steps, limit = int(rng.integers(1, 4)), int(rng.integers(1, 4)), float(rng.choice([0.6, 1.0]))
        sizes = rng.integers(1, 50, count)
        made = aggregation(size, sizes, case, neurons=neurons, predictor_steps=steps, largest_error=limit)
        oracle = Oracle(count, size, int(np.argmax(sizes)), case, neurons, 0.1, steps, limit)
        usual, weights = rng.standard_normal((count, size + buffers)), np.zeros(size + buffers, dtype=np.float32)
        for t in range(12):
            ids = sorted(rng.choice(count, int(rng.integers(1, count)), replace=False).tolist())
            rows = usual[ids] + 0.1 * rng.standard_normal((len(ids), size + buffers))
            rows[rng.random(len(ids)) < 0.05] = 0
            rows = rows.astype(np.float32)
            shares = rng.random(len(ids)) if case % 3 == 0 else None
            outcome = combined(made, rows, ids, weights, buffers=buffers, shares=shares)
            each = [1 / len(ids)] * len(ids) if shares is None else shares.tolist()
            sent = dict(zip(ids, rows.astype(float).tolist(), strict=True))
            step, number, error = oracle.step(sent, dict(zip(ids, each, strict=True)))
            np.testing.assert_allclose(outcome.weights - weights, step, rtol=1e-4, atol=1e-5, err_msg=f"{case}, {t}")
            assert outcome.notes["predicted_nodes"] == number and outcome.aggregated == tuple(ids)
            assert outcome.notes["prediction_error"] == (error if error is None else pytest.approx(error, rel=1e-3))
            weights, predicted = outcome.weights, predicted + number
    assert predicted > 100


# --- edges -----------------------------------------------------------------------------------------------------------


def test_a_network_that_knows_a_node_replaces_it():
    """Node 0 always sends twice what i* sends: once learned, a round without it moves as one with it would."""
    made = aggregation(1, predictor_steps=50, predictor_lr=0.1)
    for _ in range(3):
        combined(made, [[2.0], [1.0]], (0, 1))
    assert made.state_dict()["errors"][0] < 1e-3
    made.state_dict()["outer"][0] *= 1.5  # the mean norm is 1 now, not 1.5
    assert combined(made, [[1.0]], (1,)).weights[0] == pytest.approx(1.5, rel=1e-3)


def test_without_predictions_it_is_the_mean_to_the_bit():
    rows, weights = stream(1, "rows").standard_normal((3, 4)), stream(2, "rows").standard_normal(4).astype(np.float32)
    expected = (weights + rows.astype(np.float32).mean(axis=0, dtype=np.float64)).astype(np.float32)
    assert combined(aggregation(4), rows, (0, 1, 2), weights).weights.tobytes() == expected.tobytes()
    absent = aggregation(4, largest_error=9.0)
    combined(absent, rows, (0, 1, 2), weights)
    outcome = combined(absent, rows, (0, 2, 3), weights)  # i* did not send
    assert outcome.weights.tobytes() == expected.tobytes() and outcome.notes["prediction_error"] is None
    still = combined(absent, [[0] * 4, [1] * 4], (1, 2))  # i* did not move
    assert still.notes == {"predicted_nodes": 0, "prediction_error": None}
    alone = combined(aggregation(4), [[1.0] * 4], (1,))
    assert alone.notes == {"predicted_nodes": 0, "prediction_error": None}


def test_a_node_that_sends_zero_is_not_predicted():
    made = aggregation(1, largest_error=1e9)
    combined(made, [[0.0], [1.0]], (0, 1))
    assert made.state_dict()["errors"][0] == math.inf
    assert combined(made, [[1.0]], (1,)).notes["predicted_nodes"] == 0


def test_defaults_and_the_most_memory():
    made = PredictedAggregation()
    assert (made.neurons, made.predictor_lr, made.predictor_steps, made.largest_error) == (5, 0.1, 3, 0.5)
    assert [quantity.label for quantity in made.quantities] == [
        "nodes whose updates were predicted", "error of predictions against updates",
    ]  # fmt: skip
    sizes = np.full(2**10, 1)
    aggregation(2**16, sizes, neurons=3)  # 4 bytes x 2^10 nodes x 4 rows x 2^16 parameters: 1 GiB
    with pytest.raises(InputError, match="neurons: 3 takes more than 1 GiB for 1024 nodes"):
        aggregation(2**16 + 1, sizes, neurons=3)


def test_a_restored_state_has_the_same_future():
    one, two = aggregation(), aggregation()
    for t in range(4):
        combined(one, stream(t, "rows").standard_normal((2, 2)), (t % 4, (t + 1) % 4))
    two.load_state_dict({key: value.copy() for key, value in one.state_dict().items()})
    for t in range(4, 9):
        rows, ids = stream(t, "rows").standard_normal((2, 2)), (1, 2 + t % 2)
        assert combined(one, rows, ids).weights.tobytes() == combined(two, rows, ids).weights.tobytes()
