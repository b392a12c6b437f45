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
from fedpns_ray.core.streams import stream
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.summary import sha256

SMALL = {"nodes": 20, "samples_per_node": 50, "epochs": 2, "rounds": 25}
TIMES = ("seconds", "seconds_by_phase", "faults", "chain")
"""What differs between runs of the same bits: how long they took, what went wrong, and the digest of these."""


def untimed(records):
    return [{key: value for key, value in record.items() if key not in TIMES} for record in records]


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
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 13)
    with pytest.raises(InputError, match="is not finished"):
        load(tmp_path / "r")
    resumed = run(e, tmp_path / "r")
    assert resumed.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert untimed(resumed.records) == untimed(whole.records)


def test_a_finished_run_is_read_and_a_longer_one_goes_on(tmp_path):
    e = Experiment(strategy="fedpns", **SMALL)
    short = run(e.but(rounds=12), tmp_path / "r")
    trained = []
    run(e.but(rounds=12), tmp_path / "r", on_round=trained.append)
    assert not trained
    longer = run(e, tmp_path / "r", on_round=trained.append)
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
    for inside in ("thesis.tex", "thesis.tex/deeper"):
        with pytest.raises(InputError, match="thesis.tex is a file; name a folder"):
            run(Experiment(**SMALL), tmp_path / "papers" / inside)
    (tmp_path / "papers" / "config.yaml").write_text("learning_rate: 3")
    with pytest.raises(InputError, match="config.yaml does not describe an experiment"):
        run(Experiment(**SMALL), tmp_path / "papers")
    (tmp_path / "papers" / "config.yaml").unlink()
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
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 10)
    with (tmp_path / "r" / "rounds.jsonl").open("a") as lines:
        lines.write('{"round": 11, "test_accuracy": 0.9}\n{"round": 12, "tes')
    assert len(RunFolder(tmp_path / "r").records()) == 10  # no chain vouches for the eleventh
    resumed = run(e, tmp_path / "r")
    assert untimed(resumed.records) == untimed(run(e).records)
    lines = (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == list(range(1, 26))


@pytest.mark.parametrize("damage", ["lost lines", "no checkpoint", "empty checkpoint", "a wrong line"])
def test_a_damaged_folder_resumes_from_the_last_good_state(tmp_path, damage, caplog):
    """Checkpoints were taken after rounds 10 and 20; with a wrong line 7, neither stands for what is recorded."""
    e = Experiment(strategy="fedpns", **SMALL)
    seen = []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 20)
    lines, checkpoint = tmp_path / "r" / "rounds.jsonl", tmp_path / "r" / "checkpoint.npz"
    if damage == "lost lines":
        lines.write_text("".join(line + "\n" for line in lines.read_text().splitlines()[:12]))
    elif damage == "a wrong line":
        lines.write_text(lines.read_text().replace('{"round": 7', '{"rou', 1))
    elif damage == "no checkpoint":
        checkpoint.unlink()
    else:
        checkpoint.write_bytes(b"")
    again = []
    resumed = run(e, tmp_path / "r", on_round=again.append)
    (said,) = caplog.messages
    assert f"{tmp_path / 'r'} is damaged: " in said
    assert [record["round"] for record in again] == list(range(1 if damage == "a wrong line" else 11, 26))
    assert untimed(resumed.records) == untimed(run(e).records) == untimed(load(tmp_path / "r").records)


def test_stopping_leaves_a_checkpoint_where_it_stopped(tmp_path):
    e, seen = Experiment(strategy="fedpns", **SMALL), []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 13)
    again = []
    run(e, tmp_path / "r", on_round=again.append)
    assert again[0]["round"] == 14


def test_checkpoints_come_every_k_rounds(tmp_path):
    seen = []

    def look(record):
        path = tmp_path / "r" / "checkpoint.npz"
        seen.append(int(np.load(path)["round"]) if path.exists() else 0)

    run(Experiment(strategy="fedavg", **SMALL | {"rounds": 8}), tmp_path / "r", on_round=look, checkpoint_every=3)
    assert seen == [0, 0, 3, 3, 3, 6, 6, 8]  # a round is reported when its checkpoint stands


def test_one_writer_a_folder(tmp_path, monkeypatch):
    from fedpns_ray.records import run_folder as recording

    monkeypatch.setattr(recording, "LOCK_PATIENCE", 0.3)

    def meanwhile(record):
        with pytest.raises(InputError, match="is being written by another process"):
            run(Experiment(**SMALL), tmp_path / "r")

    run(Experiment(**SMALL | {"rounds": 1}), tmp_path / "r", on_round=meanwhile)


def test_a_folder_taken_from_a_lost_writer_is_not_touched_by_it_again(tmp_path):
    e, whole = Experiment(**SMALL | {"rounds": 20}), Experiment(**SMALL | {"rounds": 30})
    left = []

    def meanwhile(record):
        if record["round"] == 15:
            RunFolder(tmp_path / "r").break_lock()
            run(whole, tmp_path / "r")
            left.append(files())

    def files():
        """But for TensorBoard's, of which every writer has its own."""
        return {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir() if "tfevents" not in p.name}

    with pytest.raises(InputError, match="is being written by another process"):
        run(e, tmp_path / "r", on_round=meanwhile)
    assert files() == left[0]
    assert load(tmp_path / "r").summary["weights_sha256"] == run(whole).summary["weights_sha256"]


def test_seconds_are_spent_once():
    started = time.perf_counter()
    result = run(Experiment(strategy="fedpns", **SMALL))
    assert 0 < result.summary["seconds"] < time.perf_counter() - started
    assert set(result.records[0]["seconds_by_phase"]) == {
        "draw", "train", "evaluate", "transfer", "select", "aggregate",
    }  # fmt: skip


def test_the_final_model_as_a_module(tmp_path):
    import torch

    result = run(Experiment(strategy="fedavg", **SMALL | {"rounds": 3}), tmp_path / "r")
    s = build_population(result.experiment).samples
    with torch.no_grad():
        right = load(tmp_path / "r").module()(torch.from_numpy(s.test_x)).argmax(1).numpy() == s.test_y
    assert right.mean() == pytest.approx(result.summary["last_accuracy"])


@pytest.mark.parametrize("q", [0.4, 1.0])
def test_nodes_that_drop_out(q):
    """Simulated and seeded; the strategy sees only who returned."""
    e = Experiment(strategy="fedpns", drop_probability=q, **SMALL)
    result = run(e)
    assert untimed(result.records) == untimed(run(e).records)
    returned = [node for record in result.records for node in record["returned"]]
    assert sum(len(r["drawn"]) for r in result.records) == 100
    assert returned == [] if q == 1 else 35 < len(returned) < 85
    for record in result.records:
        assert set(record["returned"]) <= set(record["drawn"])
        assert sorted(record["aggregated"] + record["excluded"]) == record["returned"]
        floor = 0.7 * len(record["returned"])  # of what returned
        assert not record["excluded"] or len(record["aggregated"]) + 1 > floor
    if q == 1:
        assert np.array_equal(result.weights, Worker(e, build_population(e)).initial_weights)
        assert result.records[-1]["probability"] == [0.05] * 20


def test_x_counts_only_draws_that_returned():
    e = Experiment(strategy="fedpns", drop_probability=0.5, **SMALL)
    result = run(e)
    p, drawn, labelled = np.full(20, 0.05), np.zeros(20), np.zeros(20)
    for record in result.records:
        drawn[record["returned"]] += 1
        labelled[record["labelled"]] += 1
        others = np.setdiff1d(np.arange(20), record["labelled"])
        x = labelled[record["labelled"]] / drawn[record["labelled"]]
        decrement = p[record["labelled"]] * np.minimum((x + 0.7) ** 2, 1)
        p[record["labelled"]] -= decrement
        p[others] += decrement.sum() / len(others)
        np.testing.assert_allclose(p, record["probability"], atol=1e-8)


def test_slow_nodes_take_longer_and_change_nothing():
    fast = Experiment(strategy="fedavg", **SMALL | {"rounds": 2})
    slow = run(fast.but(slow_fraction=1.0, slow_seconds=0.05))
    assert slow.records[0]["seconds_by_phase"]["train"] > 4 * 0.05
    assert slow.summary["weights_sha256"] == run(fast).summary["weights_sha256"]


def test_killed_at_any_moment_and_resumed_to_the_same_bits(tmp_path):
    """Real SIGKILLs, at moments that fall where they may."""
    e = Experiment(strategy="fedpns", **SMALL | {"rounds": 400, "samples_per_node": 300})
    config = tmp_path / "e.yaml"
    config.write_text(e.to_yaml())
    out = tmp_path / "r"
    command = [sys.executable, "-m", "fedpns_ray", "run", str(config), "--in-process", "--out", str(out), "--json"]

    def lines():
        return len((out / "rounds.jsonl").read_bytes().splitlines()) if (out / "rounds.jsonl").exists() else 0

    for more in (3, 31, 57):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        goal, patience = lines() + more, time.monotonic() + 180
        while lines() < goal and process.poll() is None and time.monotonic() < patience:
            time.sleep(0.002)
        assert process.poll() is None, "the run ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["weights_sha256"] == run(e).summary["weights_sha256"]


def test_a_number_that_is_not_finite_is_null_and_named(tmp_path):
    """Here the centralised sequence runs away; the run itself does not."""
    e = Experiment(strategy="fedavg", centralised=True, lr=1e37, **SMALL | {"rounds": 2})
    for record in run(e, tmp_path / "r").records:
        assert record["weight_divergence"] is None and record["non_finite"] == ["weight_divergence"]
    assert "NaN" not in (tmp_path / "r" / "summary.json").read_text() + (tmp_path / "r" / "rounds.jsonl").read_text()
