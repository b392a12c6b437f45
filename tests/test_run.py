"""Whole runs: right, repeatable, recorded, resumable."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy

from fedpns_ray import Experiment, InputError, Interrupted, load, run
from fedpns_ray.data import build_population
from fedpns_ray.recording import RunFolder, sha256
from fedpns_ray.streams import stream
from fedpns_ray.training import Worker, one_thread

SMALL = {"nodes": 20, "samples_per_node": 50, "epochs": 2, "rounds": 25}
NO_TIMES = ("seconds",)


def untimed(records):
    return [{key: value for key, value in record.items() if key not in NO_TIMES} for record in records]


def test_fedavg_is_what_it_says():
    """Three rounds, written out."""
    e = Experiment(strategy="fedavg", **SMALL | {"rounds": 3})
    population = build_population(e)
    with one_thread():
        worker = Worker(e, population)
        w = worker.initial_weights
        for t in (1, 2, 3):
            drawn = sorted(stream(1, "draw", t).choice(20, size=4, replace=False))
            deltas = worker.train(w, t, drawn).deltas
            w = (w + deltas.mean(axis=0, dtype=np.float64)).astype(np.float32)
    result = run(e)
    assert result.summary["weights_sha256"] == sha256(w)
    assert result.rounds["drawn"].iloc[-1] == drawn


@pytest.mark.parametrize("strategy", ["fedavg", "optimal-aggregation", "fedpns", "bn2"])
def test_same_seed_same_bits(strategy):
    e = Experiment(strategy=strategy, **SMALL, **({"candidates": 8} if strategy == "bn2" else {}))
    one, two = run(e), run(e)
    assert one.summary["weights_sha256"] == two.summary["weights_sha256"]
    assert untimed(one.records) == untimed(two.records)
    assert run(e.but(seed=2)).summary["weights_sha256"] != one.summary["weights_sha256"]


def test_strategies_share_what_a_seed_names():
    avg, pns = (run(Experiment(strategy=s, **SMALL | {"rounds": 1})) for s in ("fedavg", "fedpns"))
    assert avg.summary["population"]["sha256"] == pns.summary["population"]["sha256"]
    oa, avg = (run(Experiment(strategy=s, **SMALL)) for s in ("optimal-aggregation", "fedavg"))
    assert oa.rounds["drawn"].tolist() == avg.rounds["drawn"].tolist()  # Figure 1: the same nodes for both


def test_fedpns_learns_whom_to_draw():
    """On the paper's synthetic data, sigma 0.2: the i.i.d. fifth of the nodes comes to hold far more than a fifth."""
    result = run(Experiment(strategy="fedpns", rounds=25))
    for record in result.records:
        assert set(record["excluded"]) <= set(record["labelled"]) <= set(record["drawn"])
        assert sorted(record["aggregated"] + record["excluded"]) == record["drawn"]
        assert len(record["aggregated"]) >= 7 and sum(record["probability"]) == pytest.approx(1, abs=1e-6)
    assert result.records[-1]["iid_probability"] > 0.35


def test_the_folder_explains_itself(tmp_path):
    e = Experiment(strategy="fedpns", sigma=0.8, lr=0.1, **SMALL | {"samples_per_node": 500})
    result = run(e, tmp_path / "r")
    out = tmp_path / "r"
    assert Experiment.from_yaml(out / "config.yaml") == e
    records = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert untimed(records) == untimed(result.records) and [r["round"] for r in records] == list(range(1, 26))
    assert set(records[0]) >= {
        "round", "test_accuracy", "test_loss", "lr", "drawn", "labelled", "excluded", "aggregated", "seconds"
    }  # fmt: skip
    summary = json.loads((out / "summary.json").read_text())
    weights = safetensors.numpy.load_file(out / "weights.safetensors")["weights"]
    assert sha256(weights) == summary["weights_sha256"] == result.summary["weights_sha256"]
    assert summary["final_accuracy"] == pytest.approx(np.mean([r["test_accuracy"] for r in records[-5:]]))
    assert sum(summary["nodes"]["drawn"]) == 25 * 4 and len(summary["nodes"]["labelled"]) == 20
    first = next(r["round"] for r in records if r["test_accuracy"] >= 0.5)
    assert summary["rounds_to"]["0.5"] == first and summary["rounds_to"]["0.95"] is None
    assert summary["population"]["sha256"] == build_population(e).sha256
    assert summary["versions"]["ray"] == "2.60.0"
    again = load(out)
    assert (
        isinstance(again.rounds, pd.DataFrame) and again.rounds["test_accuracy"].iloc[3] == records[3]["test_accuracy"]
    )
    assert not list(out.glob("*.partial*"))


def test_tensorboard_reads_the_curves(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(Experiment(strategy="fedavg", **SMALL | {"rounds": 4}), tmp_path / "r")
    events = EventAccumulator(str(tmp_path / "r")).Reload()
    points = events.Scalars("test_accuracy")
    assert [p.step for p in points] == [1, 2, 3, 4]
    np.testing.assert_allclose([p.value for p in points], result.rounds["test_accuracy"], rtol=1e-6)


def test_every_k_rounds_and_the_last_one_are_tested():
    result = run(Experiment(strategy="fedavg", evaluate_every=4, **SMALL | {"rounds": 10}))
    tested = [r["round"] for r in result.records if r["test_accuracy"] is not None]
    assert tested == [4, 8, 10]


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path):
    e = Experiment(strategy="fedpns", **SMALL)
    whole = run(e)
    seen = []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", seen.append, stop=lambda: len(seen) >= 13)
    with pytest.raises(InputError, match="is not finished"):
        load(tmp_path / "r")
    resumed = run(e, tmp_path / "r")
    assert resumed.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert untimed(resumed.records) == untimed(whole.records)


def test_a_finished_run_is_read_and_a_longer_one_goes_on(tmp_path):
    e = Experiment(strategy="fedpns", **SMALL)
    short = run(e.but(rounds=12), tmp_path / "r")
    trained = []
    run(e.but(rounds=12), tmp_path / "r", trained.append)
    assert not trained
    longer = run(e, tmp_path / "r", trained.append)
    assert [r["round"] for r in trained] == list(range(13, 26))
    assert longer.summary["weights_sha256"] == run(e).summary["weights_sha256"] != short.summary["weights_sha256"]


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    run(Experiment(strategy="fedavg", **SMALL | {"rounds": 2}), tmp_path / "r")
    before = {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()}
    with pytest.raises(InputError, match="holds a different experiment \\(sigma is 0.2 there, 0.5 here\\)"):
        run(Experiment(strategy="fedavg", sigma=0.5, **SMALL | {"rounds": 2}), tmp_path / "r")
    with pytest.raises(InputError, match="rounds is 2 there, 1 here"):
        run(Experiment(strategy="fedavg", **SMALL | {"rounds": 1}), tmp_path / "r")
    assert {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()} == before
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not empty and holds no experiment"):
        run(Experiment(**SMALL), tmp_path / "papers")
    with pytest.raises(InputError, match="is a file"):
        run(Experiment(**SMALL), tmp_path / "papers" / "thesis.tex")
    with pytest.raises(InputError, match="holds no experiment"):
        load(tmp_path / "papers")


def test_a_refused_experiment_writes_nothing(tmp_path):
    with pytest.raises(InputError, match="candidates: 20 is not allowed"):
        run(Experiment(strategy="bn2", nodes=15), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_torn_line_and_later_rounds_are_done_again(tmp_path):
    e = Experiment(strategy="fedavg", **SMALL)
    seen = []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", seen.append, stop=lambda: len(seen) >= 10)
    with (tmp_path / "r" / "rounds.jsonl").open("a") as lines:
        lines.write('{"round": 11, "test_accuracy": 0.9}\n{"round": 12, "tes')
    assert len(RunFolder(tmp_path / "r").records()) == 11
    resumed = run(e, tmp_path / "r")
    assert untimed(resumed.records) == untimed(run(e).records)
    lines = (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == list(range(1, 26))


def test_killed_at_any_moment_and_resumed_to_the_same_bits(tmp_path):
    """Real SIGKILLs, at moments that fall where they may."""
    e = Experiment(strategy="fedpns", **SMALL | {"rounds": 400, "samples_per_node": 300})
    config = tmp_path / "e.yaml"
    config.write_text(e.to_yaml())
    out = tmp_path / "r"
    command = [sys.executable, "-m", "fedpns_ray.cli", "run", str(config), "--out", str(out), "--json"]

    def lines():
        return len((out / "rounds.jsonl").read_bytes().splitlines()) if (out / "rounds.jsonl").exists() else 0

    for more in (3, 31, 57):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        goal, patience = lines() + more, time.monotonic() + 60
        while lines() < goal and process.poll() is None and time.monotonic() < patience:
            time.sleep(0.002)
        assert process.poll() is None, "the run ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["weights_sha256"] == run(e).summary["weights_sha256"]


def test_a_loss_that_is_no_number_is_null(tmp_path):
    result = run(Experiment(strategy="fedavg", lr=1e38, **SMALL | {"rounds": 3}), tmp_path / "r")
    records = [json.loads(line) for line in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()]
    assert records[-1]["test_loss"] is None and "NaN" not in (tmp_path / "r" / "summary.json").read_text()
    assert result.summary["final_accuracy"] >= 0
