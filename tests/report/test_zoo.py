"""docs/zoo.md: all strategies side by side, from kept data; its words are true to them."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from docs import zoo
from fedpns_ray import InputError, load, run
from fedpns_ray.reporting.curves import study_figure
from fedpns_ray.reporting.judgement import judged
from fedpns_ray.reporting.kept_figures import keep, kept, study_of
from fedpns_ray.reporting.report_card import jain

ROOT = Path(__file__).parent.parent.parent
STORED = [name for name in zoo.STUDIES if zoo.stored(name)]


def test_the_page_is_current():
    assert zoo.page() == zoo.PAGE.read_text(), "run `python docs/zoo.py write`"


@pytest.mark.parametrize("name", STORED)
def test_its_words_are_true_to_its_data(name):
    assert zoo.untrue(name) == []
    assert "{" not in "".join(zoo.section(name))


@pytest.fixture
def saying(tmp_path, monkeypatch):
    """Say something about the strategies of the study of Oort."""
    for file in ("oort.csv", "oort.parquet"):
        (tmp_path / file).write_bytes((zoo.DATA / file).read_bytes())
    said = zoo.words_of("oort")
    monkeypatch.setattr(zoo, "DATA", tmp_path)

    def say(strategies):
        (tmp_path / "words.yaml").write_text(json.dumps({"oort": {"places": said["places"], "strategies": strategies}}))
        zoo.places.cache_clear()

    yield say
    zoo.places.cache_clear()


def test_a_sentence_that_the_data_contradict_is_found_and_not_shown(saying):
    """With single-label nodes Oort is better than FedAvg; AFL is neither better nor worse."""
    ahead = {"found": "better", "says": "ahead, by {oort, single-label nodes: minus fedavg} points."}
    saying({"oort": ahead, "afl": ahead})
    assert [line.partition(" (")[0] for line in zoo.untrue("oort")] == ["afl is undecided"]
    points = [100 * (row["oort"] - row["fedavg"]) for row in finals().values()]
    (line,) = zoo.sentences("oort")
    assert line.startswith(f"- **[oort](strategies/oort.md)**: ahead, by {sum(points) / 5:+.2f} ± ")


def test_a_number_that_no_table_has(saying):
    saying({"oort": {"found": "better", "says": "{its luck} points."}})
    with pytest.raises(InputError, match="its luck.*is no number of the tables"):
        zoo.sentences("oort")


def finals():
    """Seed → strategy → final accuracy, with single-label nodes and right labels, as the CSV says."""
    rows = pd.read_csv(ROOT / "docs" / "zoo" / "oort.csv")
    rows = rows[(rows["partition"] == "sigma-rho") & rows["noisy_nodes"].isna()]
    return {seed: dict(zip(own["strategy"], own["final_accuracy"], strict=True)) for seed, own in rows.groupby("seed")}


def test_a_claim_is_judged_with_and_without_noise():
    """An option that is off has no value in the data, and is a setting of its own nevertheless."""
    found = judged(kept(zoo.study("oort"), zoo.DATA / "oort"))
    assert [(one.where.get("partition"), one.where.get("noisy_nodes"), one.pairs) for one in found] == [
        ("sigma-rho", None, 5), ("sigma-rho", 0.3, 5), ("dirichlet", None, 5), ("dirichlet", 0.3, 5),
    ]  # fmt: skip
    assert [one.verdict for one in found] == ["kept", "refuted", "undecided", "refuted"]
    points = [100 * (row["oort"] - row["fedavg"]) for row in finals().values()]
    assert found[0].effect == pytest.approx(sum(points) / 5) and set(found[0].where) == {"partition"}


def test_titles_of_panels_do_not_run_into_each_other():
    figure = study_figure(kept(zoo.study("oort"), zoo.DATA / "oort"))
    figure.canvas.draw()
    boxes = [axis.title.get_window_extent() for axis in figure.axes if axis.get_visible()]
    assert len(boxes) == 4 and all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_costs_and_the_report_card_are_kept(study_folder, tmp_path):
    study = study_of(study_folder / "study.yaml")
    keep(study, [study_folder], tmp_path / "small", zoo.ALSO)
    found = kept(study, tmp_path / "small").done
    for row in found.to_dict("records"):
        records = load(study_folder / "trials" / row["trial"]).records
        drawn = [node for record in records for node in record["drawn"]]
        assert row["bytes_up"] == sum(record["bytes_up"] for record in records)
        assert row["coverage"] == pytest.approx(len(set(drawn)) / row["nodes"])  # nodes: known from the study alone
        assert row["draws_jain"] == pytest.approx(jain(np.bincount(drawn, minlength=row["nodes"])))
    assert found["selector_seconds"].gt(0).all()


def test_the_page_of_a_strategy_has_its_rows():
    text = (ROOT / "docs" / "strategies" / "oort.md").read_text()
    assert "\n".join(zoo.of_strategy("oort")) in text and zoo.of_strategy("nobody") == []
    assert "| share of draws with wrong labels (%) |" in text and "| sent by nodes (MB) |" in text


def test_the_command_without_a_study_says_how():
    done = subprocess.run(
        [sys.executable, "docs/zoo.py", "keep", "zoo"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2 and "python docs/zoo.py keep oort runs/oort" in done.stdout


def test_a_study_over_simulated_time_is_drawn_from_its_data(tmp_path):
    """The zoo is plotted over what a round costs, which the kept rounds then hold."""
    (tmp_path / "s.yaml").write_text(
        "base: {rounds: 3, nodes: 4, fraction: 0.5, samples_per_node: 20, epochs: 1, devices: log-normal}\n"
        "axes: {strategy: [fedavg, oort]}\nseeds: 1-2\nplot: {over: simulated_seconds}\n"
    )
    study = study_of(tmp_path / "s.yaml")
    runs = {trial.name: run(trial.experiment, tmp_path / "runs" / trial.name, progress=False) for trial in study.trials}
    keep(study, [tmp_path / "runs"], tmp_path / "small", zoo.ALSO)
    found = kept(study, tmp_path / "small")
    axis = study_figure(found).axes[0]
    assert axis.get_xlabel() == "simulated seconds"
    ends = {round(float(line.get_xdata()[-1]), 3) for line in axis.lines}
    for strategy in ("fedavg", "oort"):
        spent = [
            sum(record["simulated_seconds"] for record in runs[trial.name].records)
            for trial in study.trials
            if trial.experiment.strategy == strategy
        ]
        assert round(sum(spent) / 2, 3) in ends
