"""Studies on a real Ray cluster of two raylets: figures, pairs, additions, failures, layouts, storage, search."""

import json
import re
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

from fedpns_ray import InputError, load, run
from fedpns_ray.records.claims import new_claim, read_claim, write_claim
from fedpns_ray.records.storage import Storage
from fedpns_ray.study import engine, failures, ownership
from fedpns_ray.study.study_file import read_study
from fedpns_ray.study.trial import Terms, take_from_others
from fedpns_ray.study.tune import Watching
from fedpns_ray.terminal.command_line import main

TUNE = Path(__file__).parents[2] / "tune"
SMALL = "base: {nodes: 10, samples_per_node: 50, epochs: 1, rounds: 12, fraction: 0.3}\n"


class Notes:
    """A watch that writes down what it hears."""

    def __init__(self):
        self.states, self.pids, self.begun = {}, set(), []

    def begin(self, trials, done, packing):
        self.begun.append((len(trials), len(set(done))))

    def begin_search(self, tried, packing):
        self.begun.append(tried)

    def tick(self):
        pass

    def update(self, name, experiment, state, last):
        self.states.setdefault(name, []).append(state)
        self.pids.add(last.get("pid"))


def run_study(study, storage, notes):
    return engine.run_study(study, storage, Watching(notes))


@pytest.fixture
def study(tmp_path):
    def make(text, base=SMALL, **options):
        (tmp_path / "s.yaml").write_text(base + text)
        return read_study(tmp_path / "s.yaml", **options)

    return make


def rows(folder):
    return pd.read_csv(folder / "study.csv")


@pytest.mark.parametrize("figure", range(1, 7))
def test_the_figures_in_small(cluster, mnist, cifar10, tmp_path, figure, capsys):
    """The shipped files, all settings, two seeds; fewer samples and tests, so that CI can afford it."""
    small = ["--rounds", "3", "--seeds", "1-2", "--set", "samples_per_node=40", "--set", "evaluate_every=3"]
    small += ["--set", "epochs=1"] if figure in (2, 4) else []
    out = tmp_path / "out"
    assert main(["study", str(TUNE / f"fig{figure}.yaml"), *small, "--out", str(out)]) == 0
    trials, curves = rows(out), pd.read_parquet(out / "curves.parquet")
    assert set(trials["status"]) == {"done"} and len(curves) == 3 * len(trials)
    assert len(trials) == {1: 4, 2: 24, 3: 48, 4: 24, 5: 24, 6: 6}[figure]
    assert (out / "curves.png").stat().st_size > 10_000 and "final accuracy" in (out / "table.md").read_text()
    for _, pair in trials.groupby(["seed", "model", "sigma", "varrho" if figure == 2 else "rho"]):
        assert pair["population_sha256"].nunique() == 1  # strategies with one seed share their data
    if figure == 1:
        records = [load(out / "trials" / name).records for name in trials["trial"]]
        assert [r["drawn"] for r in records[0]] == [r["drawn"] for r in records[1]]  # the same nodes for both
    shown = capsys.readouterr().out
    assert "final accuracy" in shown and "Traceback" not in shown


def test_only_what_is_new_is_run(cluster, study, tmp_path, caplog):
    """Trials that are fused, or were; a study is resumed with any `fuse`."""
    storage, axes = Storage(tmp_path / "o"), "axes: {strategy: [fedpns, fedavg], sigma: [0.3]}\n"
    first = Notes()
    with caplog.at_level("INFO"):
        run_study(study(axes + "seeds: 1-2"), storage, first)
    assert "4 trials are fused, in 2 workers" in caplog.text
    assert first.begun == [(4, 0)] and len(first.states) == 4
    assert {states[-1] for states in first.states.values()} == {"done"}
    again = Notes()
    run_study(study(axes + "seeds: 1-2"), storage, again)
    assert again.begun == []  # not even a Ray is asked
    more = Notes()
    run_study(study(axes.replace("[0.3]", "[0.3, 0.5]") + "seeds: 1-3"), storage, more)
    assert more.begun == [(12, 4)] and len(more.states) == 8 and not set(more.states) & set(first.states)
    longer = Notes()
    run_study(study(axes + "seeds: 1-2\nfuse: off\n", changes={"rounds": 15}), storage, longer)
    assert longer.begun == [(4, 0)]
    for name in longer.states:
        result = load(storage.path / "trials" / name)
        assert result.summary["rounds"] == 15 and result.summary["training"] == "in cohorts, exactly"
        assert result.summary["weights_sha256"] == run(result.experiment).summary["weights_sha256"]
    with pytest.raises(InputError, match=r"rounds: 12 is not allowed; .* has run 15 already; name a new folder"):
        run_study(study(axes + "seeds: 1-2"), storage, Notes())


def test_workers_are_reused(cluster, study, tmp_path):
    notes = Notes()
    run_study(study("axes: {sigma: [0.2, 0.3]}\nseeds: 1-10"), Storage(tmp_path / "o"), notes)
    assert len(notes.states) == 20 and len(notes.pids - {None}) <= 4  # 2 at once; never one process per trial


def test_a_trial_may_spread_over_node_actors(cluster, study, tmp_path):
    notes = Notes()
    s = study("axes: {strategy: [fedpns, fedavg]}\nlayout: {actors: 2}\n")
    run_study(s, Storage(tmp_path / "o"), notes)
    assert [states[-1] for states in notes.states.values()] == ["done", "done"]
    for trial in s.trials:
        got = load(tmp_path / "o" / "trials" / trial.name).summary["weights_sha256"]
        assert got == run(trial.experiment).summary["weights_sha256"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpus_per_trial: 64", "trial: 64 CPU do not fit on any machine"),
        ("axes: {sigma: [0.5, 0.1], selection: [half]}", "selection: half draws 2 i.i.d. and 1 other nodes per round"),
        ("axes: {model: [mlr, cnn-m]}", "model: cnn-m cannot be trained on inputs of shape (60,)"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(cluster, tmp_path, capsys, text, message):
    (tmp_path / "s.yaml").write_text(SMALL + text)
    assert main(["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_dry_run(cluster, tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(SMALL + "axes: {strategy: [fedpns, fedavg], sigma: [0.2, 0.5]}\nseeds: 1-3\n")
    assert main(["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "12 trials, 0 of them done" in shown and re.search(r"about \d+:\d\d", shown) and "1 2 3" in shown
    assert not (tmp_path / "o").exists()


def test_on_s3(cluster, study, tmp_path, s3):
    """Trials and results in a bucket; a trial that was left unfinished there resumes."""
    storage = Storage(s3 % "study")
    s = study("axes: {strategy: [fedpns, fedavg]}\nseeds: 1")
    trial = s.trials[0]
    with pytest.raises(Exception, match="enough"):
        run(trial.experiment, tmp_path / "half", checkpoint_every=4, on_round=stop_after(5))
    storage.write("study.yaml", b"")
    storage.push(f"trials/{trial.name}", tmp_path / "half")
    before = storage.read(f"trials/{trial.name}/rounds.jsonl").splitlines()[:4]
    assert main(["study", str(tmp_path / "s.yaml"), "--out", storage.place]) == 0
    assert storage.read(f"trials/{trial.name}/rounds.jsonl").splitlines()[:4] == before  # times and all: not done again
    table = pd.read_csv(pd.io.common.BytesIO(storage.read("study.csv")))
    assert list(table["status"]) == ["done", "done"]
    noted, page = storage.read("commands.txt").decode(), storage.read("report.html").decode()
    assert noted.startswith("fedpns study ") and "--out 's3://studies/study?" in noted
    assert "s3://studies/study" in page and "k:s@" not in noted + page
    digest = table.set_index("trial").loc[trial.name, "weights_sha256"]
    assert digest == run(trial.experiment).summary["weights_sha256"]


def stop_after(rounds):
    def on_round(record):
        if record["round"] == rounds:
            raise RuntimeError("enough")

    return on_round


SEARCH = """
base: {nodes: 20, samples_per_node: 100, epochs: 2, rounds: 25, sigma: 0.3, alpha: 2, beta: 0.7, v: 0.7}
search:
  space: {alpha: {min: 0.5, max: 4, step: 0.1}, beta: {min: 0, max: 1, step: 0.05}, v: {min: 0.5, max: 0.9, step: 0.1}}
  target: 0.28
  trials: 6
  grace: 4
  confirm: 2
seeds: 1-2
baseline: {alpha: 2, beta: 0.7, v: 0.7}
targets: []
"""


def test_a_search_and_its_resumption(cluster, tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(SEARCH)
    command = ["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o")]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert re.search(r"own settings \(alpha 2, beta 0.7, v 0.7\) rank \d of 6 suggestions", shown), shown
    tried = pd.read_csv(tmp_path / "o" / "search.csv")
    assert (len(tried) == 6 and list(tried.iloc[:, :3].iloc[0]) == [2.0, 0.7, 0.7]) or 2.0 in set(tried["alpha"])
    assert (tried["rounds"] <= 25).all() and tried["rounds"].min() < 25  # some were stopped early, or reached it
    confirmed = rows(tmp_path / "o")
    assert set(confirmed["status"]) == {"done"} and set(confirmed["rounds"]) == {25} and len(confirmed) in (4, 6)
    (tmp_path / "s.yaml").write_text(SEARCH.replace("trials: 6", "trials: 8"))
    assert main(command) == 0
    more = pd.read_csv(tmp_path / "o" / "search.csv")
    assert len(more) == 8 and more.iloc[:6].equals(tried)  # two more were tried, none again


def test_json_and_tensorboard(cluster, tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(SMALL + "axes: {strategy: [fedpns, fedavg]}\nseeds: 1-3\n")
    assert main(["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o"), "--json"]) == 0
    captured = capsys.readouterr()
    table = json.loads(captured.out)
    assert [row["strategy"] for row in table] == ["fedpns", "fedavg"] and captured.err == ""
    finals = rows(tmp_path / "o").pivot(index="seed", columns="strategy", values="final_accuracy")
    difference = (finals["fedpns"] - finals["fedavg"]).mean()
    assert table[0]["difference"] == pytest.approx(difference) and table[0]["pairs"] == 3
    assert table[0]["test_accuracy"] == pytest.approx(finals["fedpns"].mean())
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    board = EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "o"))
    board.Reload()
    assert len(board.Runs()) == 6
    assert all("test_accuracy" in tags["scalars"] for tags in board.Runs().values())


def test_a_study_that_was_taken_over_stops(cluster, study, tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "SIGN_EVERY", 0.2)
    place, taken = Storage(tmp_path / "o"), new_claim()

    def take_over():
        while not list(tmp_path.rglob("rounds.jsonl")):
            time.sleep(0.1)
        write_claim(place, taken)

    threading.Thread(target=take_over, daemon=True).start()
    with pytest.raises(InputError, match=r"was taken over by .*; this process writes nothing more there"):
        run_study(study("seeds: 1-2\n", changes={"rounds": 100_000}), place, Notes())
    assert read_claim(place) == taken and "study.csv" not in place.names()


@pytest.mark.parametrize(
    ("holder", "broken"),
    [("away old", True), ("here old", True), ("away other", True), ("here other", False), ("here", False)],
)
def test_locks_are_taken_from_lost_machines_and_from_an_owner_that_is_gone(cluster, tmp_path, holder, broken):
    (tmp_path / ".machine").write_text(holder)
    (tmp_path / ".lock").touch()
    terms = Terms(Storage(tmp_path), {}, owner="new", taken_from="old")
    take_from_others(tmp_path, terms, lost={"away"})
    assert (tmp_path / ".lock").exists() != broken
    assert (tmp_path / ".machine").read_text().endswith(" new")


def test_a_lost_machine(cluster, study, tmp_path, monkeypatch):
    """Last in this file: one of the two machines goes in mid-study. Every trial ends, to the same bits.

    No failure is allowed here, and the loss of a machine is none.
    """
    monkeypatch.setattr(failures, "RETRIES", 0)
    counted, count = [], failures.Failures.count
    monkeypatch.setattr(failures.Failures, "count", lambda *what: counted.append(count(*what)) or counted[-1])
    s = study(
        "axes: {strategy: [fedpns, fedavg], sigma: [0.2, 0.5]}\nseeds: 1-2\n", changes={"rounds": 250, "epochs": 8}
    )
    storage, notes = Storage(tmp_path / "o"), Notes()
    lost = cluster.list_all_nodes()[-1]

    def lose():
        while len(notes.pids - {None}) < 2:  # until a worker has reported from each machine
            time.sleep(0.05)
        cluster.remove_node(lost, allow_graceful=False)

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    outcome = run_study(s, storage, notes)
    thread.join(timeout=120)
    assert not outcome.errors and len(cluster.list_all_nodes()) == 1
    assert counted and set(counted) == {0}
    trial = s.trials[0]
    results = [load(tmp_path / "o" / "trials" / trial.name) for trial in s.trials]
    assert results[0].summary["weights_sha256"] == run(trial.experiment).summary["weights_sha256"]
    assert all(result.summary["rounds"] == 250 for result in results)


def test_trials_that_diverge_are_reported_as_diverged(cluster, tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(SMALL + "axes: {strategy: [fedpns, fedavg], lr: [0.01, 1.0e+38]}\n")
    command = ["study", str(tmp_path / "s.yaml"), "--rounds", "30", "--out", str(tmp_path / "o")]
    for _ in range(2):  # the second time nothing is run
        assert main(command) == 3
        printed = capsys.readouterr()
        assert printed.err.count("\ndiverged in round ") + printed.err.startswith("diverged") == 2, printed.err
        assert re.search(r"fedavg +│ 1e\+38 +│ +0 │ +1 │ +- │", printed.out), printed.out
    table = rows(tmp_path / "o").set_index("lr")
    assert set(table.loc[1e38, "status"]) == {"diverged"} and set(table.loc[0.01, "status"]) == {"done"}
    assert table.loc[1e38, "final_accuracy"].isna().all() and (table.loc[1e38, "diverged_in_round"] > 0).all()
    assert main(["report", str(tmp_path / "o"), "--out", str(tmp_path / "r.html")]) == 0
    assert "2 of 4 runs diverged" in capsys.readouterr().out


def test_damaged_trials_are_mended(cluster, study, tmp_path, caplog):
    from tests.test_damage import flipped, garbled, half_a_summary

    s, storage = study("axes: {strategy: [fedpns, fedavg]}\nseeds: 1-2\n"), Storage(tmp_path / "o")
    run_study(s, storage, Notes())
    trials = [tmp_path / "o" / "trials" / trial.name for trial in s.trials]
    before = {trial: load(trial) for trial in trials}
    for trial, deed in zip(trials, (flipped, garbled, half_a_summary), strict=False):
        deed(trial)
    notes = Notes()
    outcome = run_study(s, storage, notes)
    assert not outcome.errors and notes.begun == [(4, 1)]
    assert sum("is damaged: " in message for message in caplog.messages) == 3
    for trial, whole in before.items():
        assert load(trial).summary["weights_sha256"] == whole.summary["weights_sha256"]
        assert [r["test_accuracy"] for r in load(trial).records] == [r["test_accuracy"] for r in whole.records]


def test_a_mistake_in_the_users_part_is_named(cluster, study, tmp_path):
    """It leaves the trial that it is fused with, and is tried again alone."""
    s = study("axes: {strategy: ['tests.parts:Clumsy', fedavg]}\nfuse: 2\n")
    notes = Notes()
    outcome = run_study(s, Storage(tmp_path / "o"), notes)
    ((name, error),) = outcome.errors.items()
    assert "waiting" in notes.states[name]
    assert notes.states.pop(name)[-4:] == ["running"] * (failures.RETRIES + 1) + ["failed"]
    ((_, others),) = notes.states.items()
    assert others[-1] == "done" and "waiting" not in others
    assert re.search(r"UserCodeError: .*tests/parts.py, line \d+, in draw: ValueError: a mistake", error), error
