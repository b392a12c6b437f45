"""What a study reports about cost: bytes and simulated time in its table, its files and its plot."""

from pathlib import Path

import pandas as pd
import pytest

from fedpns_ray import run
from fedpns_ray.records.storage import Storage
from fedpns_ray.registry import PRESETS
from fedpns_ray.reporting.curves import _spent, plot_study
from fedpns_ray.reporting.formatting import formatted
from fedpns_ray.reporting.study_result import concluded
from fedpns_ray.reporting.tables import table
from fedpns_ray.study.engine import StudyOutcome
from fedpns_ray.study.study_file import read_study

TUNE = Path(__file__).parents[2] / "tune"
SMALL = (
    "base: {nodes: 10, samples_per_node: 50, epochs: 5, lr: 0.1, rounds: 3, candidates: 4%s}\n"
    "axes: {strategy: [fedavg, bn2]}\nseeds: 1-3\ntargets: [0.05]\n"
)


def results(tmp_path, more, plot=""):
    """Every trial run in this process, and the study collected from their folders."""
    (tmp_path / "s.yaml").write_text(SMALL % more + plot)
    study = read_study(tmp_path / "s.yaml")
    for trial in study.trials:
        run(trial.experiment, tmp_path / "out" / "trials" / trial.name)
    return study, concluded(study, Storage(tmp_path / "out"), StudyOutcome(study.trials)).results


def test_costs_with_the_device_model(tmp_path):
    study, found = results(tmp_path, ", devices: log-normal", "plot: {over: simulated_seconds}\n")
    rows = table(found, study.trials)
    model = 4 * (60 * 10 + 10)
    assert rows.set_index("strategy").loc["fedavg", "bytes_up"] == 3 * 2 * model
    assert rows.set_index("strategy").loc["bn2", "bytes_up"] == 3 * (2 * model + 4 * 8)
    assert (rows["simulated_seconds"] > 0).all() and (rows["simulated_seconds_interval"] > 0).all()
    header, body = formatted(rows, found)
    cells = dict(zip(header, body[0], strict=True))
    assert cells["MB up"] == "0.01464 ± 0" and cells["MB down"] == "0.01464 ± 0" and " ± " in cells["simulated s"]
    assert " ± " in cells["rounds to 5%"]
    one = found.curves[found.curves["strategy"] == "fedavg"]
    spent = _spent(one, "simulated_seconds")
    assert spent.is_monotonic_increasing
    assert spent.loc[3] == pytest.approx(rows.set_index("strategy").loc["fedavg", "simulated_seconds"])
    assert plot_study(found).startswith(b"\x89PNG")
    found.write(Storage(tmp_path / "out"))
    csv = pd.read_csv(tmp_path / "out" / "study.csv")
    assert {"bytes_up", "bytes_down", "simulated_seconds"} <= set(csv)
    assert {"bytes_up", "bytes_down", "simulated_seconds"} <= set(pd.read_parquet(tmp_path / "out" / "curves.parquet"))


def test_without_it_the_table_is_as_it_was(tmp_path):
    study, found = results(tmp_path, "")
    header, _ = formatted(table(found, study.trials), found)
    assert not {"MB up", "MB down", "simulated s"} & set(header)
    assert found.trials["bytes_up"].notna().all() and plot_study(found).startswith(b"\x89PNG")


def test_the_zoo_holds_every_strategy():
    studies = [read_study(TUNE / f"{name}.yaml") for name in ("zoo", "zoo-dirichlet")]
    for study in studies:
        assert len(study.trials) == 5 * len(PRESETS) and {t.experiment.strategy for t in study.trials} == set(PRESETS)
    one = studies[0].trials[0].experiment
    assert (one.model, one.sigma, one.rho, one.rounds, one.devices) == ("cnn-m", 0.3, 1, 100, "log-normal")


def test_an_axis_named_as_a_quantity_keeps_its_column(tmp_path):
    """`expectation` is a reading of Algorithm 1 that a study may vary, and what Algorithm 1 measures in every round."""
    (tmp_path / "s.yaml").write_text(
        "base: {nodes: 10, samples_per_node: 50, epochs: 1, rounds: 2}\naxes: {expectation: [mean, sum]}\n"
    )
    study = read_study(tmp_path / "s.yaml")
    for trial in study.trials:
        run(trial.experiment, tmp_path / "out" / "trials" / trial.name)
    found = concluded(study, Storage(tmp_path / "out"), StudyOutcome(study.trials)).results
    assert list(found.trials["expectation"]) == ["mean", "sum"] and found.curves.columns.is_unique
    assert list(found.curves["expectation_setting"]) == ["mean", "mean", "sum", "sum"]
    assert found.curves["expectation"].dtype == float and (found.curves["expectation"] > 0).all()
