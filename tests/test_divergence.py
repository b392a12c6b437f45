"""NaN is no result: an update that is not finite is left out, and a run that has nothing finite left says so."""

import json
import re

import numpy as np
import pytest

from fedpns_ray import DivergedError, Experiment, load, run
from fedpns_ray.registry import PRESETS
from fedpns_ray.terminal.command_line import main
from tests.strategies.test_all import experiment
from tests.test_run import untimed

SMALL = {"nodes": 12, "fraction": 0.5, "samples_per_node": 50, "epochs": 1, "rounds": 6}
HOPELESS = {**SMALL, "strategy": "fedavg", "lr": 1e38, "rounds": 40}
"""MLR with a learning rate at the end of float32."""


@pytest.mark.parametrize("strategy", PRESETS)
def test_one_broken_node_a_round_does_no_harm(strategy):
    result = run(experiment(strategy, objective="tests.parts:Poison", rounds=SMALL["rounds"]))
    assert np.isfinite(result.weights).all() and result.summary["final_accuracy"] > 0
    assert result.summary["non_finite_updates"] == SMALL["rounds"]
    for record in result.records:
        (broken,) = record["non_finite_updates"]
        assert broken == record["drawn"][0] and broken in record["excluded"]
        assert broken not in record["aggregated"] and broken not in record["returned"]
        assert len(record["gradient_norms"]) == len(record["returned"]) == len(record["drawn"]) - 1
        assert np.isfinite([record["test_loss"], record["train_loss"]]).all()


def test_what_a_broken_update_costs_is_counted():
    """It was sent, and found to be broken by whoever received it."""
    fine, broken = (
        run(Experiment(strategy="fedavg", objective=objective, **SMALL))
        for objective in ("plain", "tests.parts:Poison")
    )
    assert fine.summary["bytes_up"] == broken.summary["bytes_up"]
    assert "non_finite_updates" not in fine.records[0] and fine.summary["non_finite_updates"] == 0


def test_a_run_without_a_finite_update_has_diverged(tmp_path):
    e = Experiment(**HOPELESS)
    with pytest.raises(DivergedError, match=r"diverged in round \d+ \(") as caught:
        run(e, tmp_path / "r")
    result = caught.value.result
    t = result.summary["diverged"]["round"]
    assert len(result.records) == result.summary["rounds"] == t < e.rounds
    assert "diverged" in result.records[-1] and not any("diverged" in record for record in result.records[:-1])
    assert result.summary["final_accuracy"] is None and np.isfinite(result.weights).all()
    again = load(tmp_path / "r")
    assert again.summary == result.summary and again.records == result.records
    seen = []
    for longer in (e, e.but(rounds=60)):  # known already: nothing is run again
        with pytest.raises(DivergedError):
            run(longer, tmp_path / "r", on_round=seen.append)
    assert not seen
    (tmp_path / "r" / "summary.json").unlink()
    with pytest.raises(DivergedError) as repeated:
        run(e, tmp_path / "r")
    assert untimed(repeated.value.result.records) == untimed(result.records)
    assert repeated.value.result.summary["weights_sha256"] == result.summary["weights_sha256"]


def test_a_model_that_is_finite_but_whose_test_is_not_has_diverged():
    """Weights near the end of float32: nothing overflows but the outputs on the test set."""
    e = Experiment(strategy="fedavg", model="tests.test_divergence:Overflowing", **SMALL)
    with pytest.raises(DivergedError, match="diverged in round 1 .the test loss is not finite") as caught:
        run(e)
    assert caught.value.result.records[-1]["test_accuracy"] is None


def Overflowing(shape, classes):  # noqa: N802
    import torch
    from torch import nn

    class Net(nn.Linear):
        def forward(self, x):
            return super().forward(x) if self.training else super().forward(x) * torch.tensor(float("inf"))

    return Net(shape[0], classes)


def test_the_command_says_so_and_exits_with_3(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = [word for key, value in HOPELESS.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    for _ in range(2):
        assert main(["run", *flags, "--in-process", "--out", "r"]) == 3
        printed = capsys.readouterr()
        assert printed.err.startswith("fedpns: fedavg, seed 1: diverged in round ") and printed.err.count("\n") == 1
        assert "final accuracy -" in printed.out
    assert main(["run", *flags, "--in-process", "--out", "r", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["diverged"]["round"] == len(
        (tmp_path / "r/rounds.jsonl").open().readlines()
    )
    assert main(["report", "r", "--out", "r.html"]) == 0
    assert "1 of 1 runs diverged" in capsys.readouterr().out
    assert main(["watch", "r", "--once"]) == 0
    assert "diverged in round" in capsys.readouterr().out


def test_cnn_m_with_a_learning_rate_of_100(mnist):
    e = Experiment(dataset="mnist", strategy="fedpns", lr=100, nodes=5, fraction=0.6, samples_per_node=40, rounds=10)
    with pytest.raises(DivergedError):
        run(e)


def test_a_comparison_counts_the_runs_that_diverged(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(
        "nodes: 12\nfraction: 0.5\nsamples_per_node: 50\nepochs: 1\nrounds: 30\nlr: 1.0e+38\n"
    )
    assert main(["compare", "c.yaml", "--strategies", "fedpns,fedavg", "--out", "c"]) == 3
    printed = capsys.readouterr()
    assert printed.err.count("\ndiverged in round ") == 2
    assert re.search(r"│ fedavg +│ +0 │ +1 │", printed.out), printed.out
