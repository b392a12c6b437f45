"""Server optimisers: with every other part, and across checkpoints."""

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, Interrupted, run
from fedpns_ray.core.interfaces import Nodes, Outcome
from fedpns_ray.core.server_step import served
from fedpns_ray.registry import PARTS
from fedpns_ray.strategies.fedavg import RandomSelection
from fedpns_ray.strategies.fedavgm import MomentumServer
from fedpns_ray.terminal.command_line import main
from tests.test_run import untimed

SMALL = {"nodes": 12, "fraction": 0.34, "samples_per_node": 30, "epochs": 2, "rounds": 12}


class Watching(RandomSelection):
    """A random draw that remembers the steps it was told of."""

    name = "watching"

    def learn(self, updates, outcome):
        STEPS_SEEN.append((outcome.step, outcome.weights))


STEPS_SEEN = []


def test_a_round_is_that_of_fedavg_moved_by_the_server():
    """Round 1 of FedAdam, from the model that FedAvg arrives at: m = 0.1 Delta, v = 0.99 tau^2 + 0.01 Delta^2."""
    STEPS_SEEN.clear()
    e = Experiment(strategy="fedavg", selection=Watching, **{**SMALL, "rounds": 1})
    averaged = run(e)
    adapted = run(e.but(server="adam", **{"server.lr": 0.1, "server.tau": 0.01}))
    (plain_step, plain), (step, weights) = STEPS_SEEN
    start = plain - plain_step
    delta = averaged.weights.astype(np.float64) - start
    expected = 0.1 * (0.1 * delta) / (np.sqrt(0.99 * 0.01**2 + 0.01 * delta**2) + 0.01)
    np.testing.assert_allclose(step, expected, atol=1e-6)
    assert np.abs(expected - delta).max() > 1e-3
    assert np.array_equal(weights, adapted.weights)  # what the selection learns from is the step that was taken


def test_the_server_changes_neither_labels_nor_exclusions_of_its_round():
    """Optimal Aggregation judges updates against the aggregated model; the server moves after it."""
    e = Experiment(strategy="fedpns", **SMALL)
    first, moved = run(e).records[0], run(e.but(server="yogi")).records[0]
    keys = ("drawn", "labelled", "excluded", "aggregated", "train_loss", "bytes_up")
    assert [first[key] for key in keys] == [moved[key] for key in keys]
    assert first["test_loss"] != moved["test_loss"]


@pytest.mark.parametrize("server", ["momentum", "adam", "yogi", "adagrad"])
def test_fedpns_with_a_server_is_interrupted_and_resumed_to_the_same_bits(tmp_path, server):
    e = Experiment(strategy="fedpns", server=server, **SMALL)
    whole, seen = run(e), []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 7)
    with np.load(tmp_path / "r" / "checkpoint.npz") as state:
        kept = {key: state[key] for key in state.files if key.startswith("server.")}
    names = {"server.v"} if server == "momentum" else {"server.m", "server.v"}
    assert set(kept) == names and all(a.dtype == np.float64 and a.shape == whole.weights.shape for a in kept.values())
    resumed = run(e, tmp_path / "r")
    assert resumed.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert untimed(resumed.records) == untimed(whole.records)


def test_a_round_that_diverges_leaves_the_state():
    server = MomentumServer(lr=1e6)
    server.begin(Nodes(np.ones(1, dtype=np.int64), np.ones(1, dtype=bool), 1, parameters=2))
    weights = np.zeros(2, dtype=np.float32)
    outcome, reason = served(server, weights, Outcome(np.array([1e-3, 0], dtype=np.float32)))
    assert not reason and outcome.weights[0] == pytest.approx(1000)
    kept = server.state_dict()["v"].copy()
    unmoved = Outcome(np.array([3e38, 0], dtype=np.float32))
    assert served(server, weights, unmoved) == (unmoved, "the server's step is not finite")
    assert np.array_equal(server.state_dict()["v"], kept)


def test_a_round_without_updates_moves_nothing():
    """Momentum alone moves nothing: where nobody returns, the model stays."""
    result = run(Experiment(strategy="fedavgm", **{**SMALL, "drop_probability": 1.0, "rounds": 2}))
    assert result.records[0]["test_loss"] == result.records[1]["test_loss"]


def test_names_labels_and_settings():
    e = Experiment(strategy="fedadam", **SMALL)
    assert e.server == "adam" and e.label == "fedadam" and "server" not in e.settings()
    assert e.settings()["server.lr"] == 0.01 and e.parameters["server.beta2"] == 0.99
    assert Experiment(**e.settings()) == e
    mixed = Experiment(strategy="fedpns", server="adam", **{"server.lr": 0.1, "lr": 0.05})
    assert mixed.label == "fedpns+adam" and mixed.settings()["server"] == "adam" and mixed.lr == 0.05
    assert mixed.build_strategy().server.lr == 0.1
    assert mixed.but(strategy="fedavg").server == "none"  # another strategy brings its own parts
    assert Experiment(server=PARTS["server"]["momentum"]).server == "momentum"
    both = Experiment(optimizer="adam", server="adam", **{"beta1": 0.5, "server.beta1": 0.6})
    assert (both.build_optimizer().beta1, both.build_strategy().server.beta1) == (0.5, 0.6)
    assert "server" not in Experiment().settings() and Experiment().label == "fedpns"


def test_flags_files_and_the_list(tmp_path, capsys):
    (tmp_path / "e.yaml").write_text("strategy: fedpns\nserver: adam\nserver.lr: 0.1\nrounds: 2\nmodel: mlr\n")
    out = str(tmp_path / "r")
    assert main(["run", str(tmp_path / "e.yaml"), "--in-process", "--server.tau", "0.01", "--out", out]) == 0
    assert "server.lr: 0.1\nserver.beta1: 0.9\nserver.tau: 0.01\n" in (tmp_path / "r" / "config.yaml").read_text()
    assert main(["strategies"]) == 0
    listed = capsys.readouterr().out
    assert "fedyogi" in listed and "server (--server)" in listed and "server.tau = 0.001" in listed


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"server": "sgd"}, "server: 'sgd' is unknown; choose from none, momentum, adam, yogi, adagrad, or package"),
        (
            {"server.lr": 1},
            "server.lr: 1 is not allowed; it is only used with server momentum or adam or yogi or adagrad",
        ),
        ({"strategy": "fedadam", "server.beta1": 1}, "server.beta1: 1 is not allowed; it must be less than 1"),
        ({"strategy": "fedadam", "tau": 1}, "tau: unknown key"),
        ({"server": "tests.parts:Stride"}, "is not a subclass of fedpns_ray.strategies.ServerOptimizer"),
    ],
)
def test_refused_in_one_line(settings, message):
    with pytest.raises(InputError) as caught:
        Experiment(**settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)
