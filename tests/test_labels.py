"""The labels on each node are recorded, so that a report needs no data, and none are believed that are damaged."""

import json

import numpy as np
import pytest

from fedpns_ray import Experiment, load, report, run, run_study
from fedpns_ray.data import build_population
from fedpns_ray.records.labels import labels_of, read_labels

SMALL = {"dataset": "mnist", "model": "mlr", "nodes": 6, "fraction": 0.5, "rounds": 2, "samples_per_node": 30}


def test_recorded_and_read_back(mnist, tmp_path):
    e = Experiment(**SMALL)
    run(e, tmp_path / "r", progress=False)
    population, known = build_population(e), load(tmp_path / "r").summary.population
    assert np.array_equal(read_labels(known, 6), population.histogram)
    assert known["labels"] == population.histogram.sum(axis=0).tolist() and sum(known["labels"]) == 180


def test_a_report_needs_no_data(mnist, tmp_path, monkeypatch):
    run(Experiment(**SMALL), tmp_path / "r", progress=False)
    monkeypatch.setattr("fedpns_ray.reporting.selection_map.load_samples", None)  # to be called is an error
    page = report(tmp_path / "r", out=tmp_path / "page.html").path.read_text()
    expected = json.dumps(build_population(Experiment(**SMALL)).histogram.tolist(), separators=(",", ":"))
    assert expected in page.replace(", ", ",") and "mnist are not shown" not in page


def test_what_has_no_labels_or_too_many_nodes_says_less():
    assert labels_of(build_population(Experiment(dataset="tests.small_data:Lines"))) == {"labels": None}
    assert set(labels_of(build_population(Experiment(nodes=1001)))) == {"labels"}


@pytest.mark.parametrize(
    "change", [{"labels": 11}, {"labels": -1}, {"labels": "x"}, {"labels": 10**12}, {"int32-zlib-base64": "AA"}]
)
def test_damage_is_not_believed(mnist, change):
    known = labels_of(build_population(Experiment(**SMALL)))
    assert read_labels(known, 6) is not None and read_labels({}, 6) is None and read_labels(known, 7) is None
    assert read_labels({"node_labels": {**known["node_labels"], **change}}, 6) is None
    assert read_labels({"node_labels": [1]}, 6) is None


def test_the_report_of_a_users_own_data_set_knows_its_trials(tmp_path):
    """The data set brings a model and a partition of its own, which reading, without importing it, cannot know."""
    base = {"dataset": "tests.small_data:Lines", "nodes": 4, "rounds": 2, "samples_per_node": 20}
    run_study(
        {"base": base, "axes": {"strategy": ["fedavg", "fedprox"]}, "seeds": [1, 2]}, tmp_path / "s", progress=False
    )
    written = report(tmp_path / "s", out=tmp_path / "page.html")
    assert written.notes == []
    assert written.path.read_text().count("tests.small_data:Lines is a regression: its samples have no labels.") == 1
