"""The on-disk format: typed records, declared quantities, a version, and the format before there were versions."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from fedpns_ray import Experiment, InputError, Interrupted, load, report, run, run_study
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.records.code import code
from fedpns_ray.records.record import QUANTITIES, Record
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.schema import SCHEMA, declared, from_json, to_json
from fedpns_ray.records.summary import Summary
from fedpns_ray.terminal.command_line import main

SMALL = {"nodes": 10, "fraction": 0.4, "samples_per_node": 40, "epochs": 1, "rounds": 4}
BEFORE = Path(__file__).parent / "recorded" / "schema-1"
"""A run of 4 rounds, made at commit 7f877ab, which knew neither schema.json nor these types."""


def test_a_record_is_its_json_with_types():
    record = Record(round=3, test_accuracy=0.5)
    assert (Record.round, Record.test_accuracy) == ("round", "test_accuracy")
    assert (record.round, record.test_accuracy, record.bytes_up) == (3, 0.5, None)
    record.round = 4
    assert record == {"round": 4, "test_accuracy": 0.5} and json.loads(json.dumps(record)) == record


def test_a_run_folder_declares_what_its_records_hold(tmp_path):
    result = run(Experiment(**SMALL), tmp_path / "r")
    content = json.loads((tmp_path / "r" / "schema.json").read_text())
    assert content["schema"] == SCHEMA == result.summary.schema
    keys = [quantity["key"] for quantity in content["quantities"]]
    assert keys[:2] == ["test_accuracy", "test_loss"]
    assert {"iid_probability", "probability", "expectation", "expectation_after"} <= set(keys)
    assert all(key in result.records[-1] for key in keys if key != "weight_divergence")
    assert from_json((tmp_path / "r" / "schema.json").read_bytes(), result.experiment) == declared(result.experiment)


def test_summaries_name_the_code_and_the_hardware(tmp_path):
    summary = run(Experiment(**SMALL), tmp_path / "r").summary
    assert summary.device == "cpu" and summary.cpu and summary.gpu is None
    assert summary.training == "in cohorts, exactly"  # MLR
    assert summary.code == code() and len(summary.code["sources_sha256"]) == 64
    root = Path(__file__).parent.parent
    if (root / ".git").exists():
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()
        assert summary.code["commit"].removesuffix("-modified") == head


def test_the_digest_of_the_sources_is_that_of_their_bytes(tmp_path):
    """The same for a copy elsewhere that is not a checkout, another one for a changed copy."""
    package = Path(__file__).parent.parent / "fedpns_ray"
    shutil.copytree(package, tmp_path / "fedpns_ray", ignore=shutil.ignore_patterns("__pycache__"))
    ask = [sys.executable, "-c", "from fedpns_ray.records.code import code; print(*code().values())"]

    def answer():
        done = subprocess.run(ask, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
        return done.stdout.split()

    assert answer() == ["None", code()["sources_sha256"]]
    with (tmp_path / "fedpns_ray" / "errors.py").open("a") as file:
        file.write("\n")
    assert answer()[1] != code()["sources_sha256"]


def test_a_folder_of_the_format_before_is_read_reported_and_resumed(tmp_path, capsys):
    old = tmp_path / "old"
    shutil.copytree(BEFORE, old)
    result = load(old)
    assert result.summary.schema is None and result.summary.code is None
    assert result.records[3].test_accuracy == result.summary.last_accuracy == 0.3125
    assert "iid_probability" in [quantity.key for quantity in RunFolder(old).quantities(result.experiment)]
    page = report(old, out=tmp_path / "report.html")
    assert page.runs == 1 and "probability of i.i.d. nodes" in page.path.read_text()
    assert main(["watch", str(old), "--once"]) == 0 and "finished" in capsys.readouterr().out
    assert run(result.experiment, old).summary == result.summary  # read, not run again
    longer = run(result.experiment.but(rounds=6), old)  # resumed from its checkpoint, and of this format from then on
    assert longer.records[:4] == result.records and longer.summary.schema == SCHEMA
    assert longer.summary.weights_sha256 == run(result.experiment.but(rounds=6)).summary.weights_sha256


def test_this_code_computes_what_that_commit_recorded():
    again, before = run(load(BEFORE).experiment), load(BEFORE)
    timeless = [{k: v for k, v in record.items() if not k.startswith("seconds")} for record in before.records]
    for record, kept in zip(again.records, timeless, strict=True):
        for key in ("expectation", "expectation_after"):  # a matrix product has other last digits than plain sums
            assert record[key] == pytest.approx(kept.pop(key), rel=1e-12)
        assert {key: record[key] for key in kept} == kept
    found, kept = again.summary.population, before.summary.population
    assert {key: found[key] for key in kept} == kept


def test_a_run_resumed_with_something_else_says_so(tmp_path, caplog):
    """What it was made with stands in schema.json when the folder is opened, before the first round."""
    e, seen = Experiment(**SMALL | {"rounds": 4}), []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 2)
    path = tmp_path / "r" / "schema.json"
    content = json.loads(path.read_text())
    assert content["made_with"].keys() == {
        "python", "fedpns-ray", "ray", "torch", "torchvision", "numpy", "code", "device", "gpu", "cpu",
        "training",
    }  # fmt: skip
    was = {"torch": "2.12.0", "cpu": "another (AVX512)", "code": "0" * 64}
    now = content["made_with"]
    path.write_text(json.dumps(content | {"made_with": now | was}))
    result = run(e, tmp_path / "r")
    assert caplog.messages == [
        f"{tmp_path / 'r'} is resumed: {name} was {before[:12] if name == 'code' else before}, is "
        f"{now[name][:12] if name == 'code' else now[name]}; the bits may differ"
        for name, before in sorted(was.items(), key=lambda pair: list(now).index(pair[0]))
    ]
    caplog.clear()
    assert json.loads(path.read_text())["made_with"] == now
    assert run(e.but(rounds=6), tmp_path / "r").records[:4] == result.records and not caplog.messages


# --- a part of the user's own ----------------------------------------------------------------------------------------

PART = '''
from fedpns_ray.strategies import Quantity, Selection

SPREAD = Quantity("spread_of_ids", "spread of the drawn ids", unit="nodes", better="higher")

class Spread(Selection):
    """Draws every other node, and says how far apart they are."""

    name = "spread"
    quantities = (SPREAD,)
    _count: int = 0

    def begin(self, nodes):
        self._count = nodes.count

    def draw(self, rng, probe):
        return range(0, self._count, 2)

    def notes(self):
        return {SPREAD.key: 2.0 * self._count}
'''
STUDY = {
    "title": "declared",
    "base": SMALL | {"strategy": "spread_part:Spread"},
    "axes": {"sigma": [0.2, 0.5]},
    "seeds": "1-2",
    "plot": {"quantities": ["test_accuracy", "spread_of_ids"]},
}


@pytest.fixture
def study_of_mine(tmp_path, monkeypatch):
    (tmp_path / "spread_part.py").write_text(PART)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parent.parent}")
    monkeypatch.syspath_prepend(tmp_path)
    yield run_study(STUDY, tmp_path / "s", progress=False)
    sys.modules.pop("spread_part", None)


def test_a_declared_quantity_is_tabulated_plotted_and_shown(study_of_mine, tmp_path, capsys):
    """Without the part: what is read later imports nothing."""
    out = tmp_path / "s"
    assert "final spread of the drawn ids" in (out / "table.md").read_text()
    assert set(pd.read_csv(out / "study.csv")["final_spread_of_ids"]) == {20.0}
    assert set(pd.read_parquet(out / "curves.parquet")["spread_of_ids"]) == {20.0}
    sys.modules.pop("spread_part")
    (tmp_path / "spread_part.py").write_text("raise SystemExit('imported')\n")
    page = report(out, out=tmp_path / "report.html").path.read_text()
    assert "spread of the drawn ids (nodes)" in page and "imported" not in page
    trial = next((out / "trials").iterdir())
    assert main(["watch", str(trial), "--once"]) == 0
    assert "spread of the drawn ids" in capsys.readouterr().out


def test_tensorboard_has_declared_quantities_and_costs(study_of_mine, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(next((tmp_path / "s" / "trials").iterdir()))).Reload()
    assert {"test_accuracy", "spread_of_ids", "bytes_up", "lr", "seconds"} <= set(events.Tags()["scalars"])
    assert [event.value for event in events.Scalars("spread_of_ids")] == [20.0] * 4


def test_a_quantity_that_no_trial_has_is_refused_by_name():
    wrong = STUDY | {"base": SMALL, "plot": {"quantities": ["iid_probabilty"]}}
    with pytest.raises(InputError, match=r"^plot.quantities: 'iid_probabilty' .*; did you mean iid_probability\?$"):
        run_study(wrong, progress=False)


def test_a_part_may_not_declare_a_key_of_every_record(tmp_path, monkeypatch):
    (tmp_path / "taken_part.py").write_text(PART.replace("spread_of_ids", "test_loss"))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="its quantity 'test_loss' is a key of every record; choose another"):
        run(Experiment(strategy="taken_part:Spread", **SMALL), tmp_path / "r")


def test_a_damaged_schema_falls_back_to_what_is_known_by_name():
    experiment = Experiment(**SMALL)
    for content in (None, b"", b"{", b'{"quantities": [{"key": 1, "colour": 2}]}', b"[]"):
        assert set(QUANTITIES) < set(from_json(content, experiment)), content
    assert from_json(to_json([Quantity("a", "b")]), experiment) == (Quantity("a", "b"),)


def test_every_key_of_a_summary_is_declared(tmp_path):
    assert set(run(Experiment(**SMALL)).summary) <= set(vars(Summary))
