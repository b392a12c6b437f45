"""Metrics as parts: hand-computed, declared, the same in every split of the work, and refused where they cannot be."""

import numpy as np
import pytest

from examples.own_metric import KappaMetric
from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core.metrics import METRICS, Metric, confusion_of
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.core.work import Work, merged
from fedpns_ray.data import build_population
from fedpns_ray.errors import UserCodeError
from fedpns_ray.records.run_folder import RunFolder
from fedpns_ray.records.schema import plotted
from fedpns_ray.runtime.driver import begun

HERE = "tests.test_metrics"
SMALL = {"nodes": 5, "fraction": 0.4, "rounds": 4, "samples_per_node": 60, "epochs": 1, "evaluate_every": 2}
ALL = "balanced-accuracy, macro-f1, label-accuracy"

CONFUSION = np.array([[3, 1, 0, 0], [2, 2, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]])
"""Of label 2 there is no sample and no prediction."""


class Loose(Metric):
    """Returns what it has not declared."""

    name = "loose"

    def measure(self, confusion):
        return {"surprise": 1}


def test_by_hand():
    labels, predicted = np.array([[0, 0], [1, 3]]), np.array([[0, 1], [1, 1]])
    assert confusion_of(labels, predicted, 4).tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [0] * 4, [0, 1, 0, 0]]
    found = {name: metric().measure(CONFUSION) for name, metric in METRICS.items() if metric.of == "test set"}
    assert found["balanced-accuracy"] == {"balanced_accuracy": pytest.approx((3 / 4 + 2 / 4 + 1 / 2) / 3)}
    assert found["macro-f1"] == {"macro_f1": pytest.approx((6 / 9 + 4 / 8 + 2 / 3) / 3)}
    assert found["label-accuracy"] == {"label_accuracy": [0.75, 0.5, None, 0.5], "lowest_label_accuracy": 0.5}
    kappa = (0.6 - (4 * 5 + 4 * 4 + 2 * 1) / 100) / (1 - 0.38)
    assert KappaMetric().measure(CONFUSION) == {"cohens_kappa": pytest.approx(kappa)}


def test_fairness_by_hand():
    """Eleven nodes: the worst tenth are two, at 0.1 and 0.3."""
    accuracies = np.array([0.5] * 9 + [0.3, 0.1])
    found = METRICS["node-fairness"]().measure(accuracies)
    assert found["node_accuracy"] == pytest.approx((4.5 + 0.4) / 11)
    assert found["worst_nodes_accuracy"] == pytest.approx(0.2)
    assert found["node_accuracy_std"] == pytest.approx(np.sqrt(np.mean((accuracies - 4.9 / 11) ** 2)))
    assert METRICS["node-fairness"]().measure(np.array([0.7]))["worst_nodes_accuracy"] == 0.7


def test_fairness_against_the_nodes_own_data(mnist, tmp_path):
    e = Experiment(dataset="mnist", model="mlr", metrics="node-fairness", **SMALL)
    result = run(e, out=tmp_path)
    assert ["node_accuracy" in record for record in result.records] == [False, True, False, True]
    population, s, right = build_population(e), mnist, []
    for node in range(5):
        x, y = population.own(node)
        x = (x.reshape(len(y), -1) / 255 - s.mean) / s.deviation
        predicted = (x @ result.weights[:-10].reshape(10, 784).T + result.weights[-10:]).argmax(1)
        right.append(float((predicted == y).mean()))
    last = result.records[-1]
    assert last["node_accuracy"] == pytest.approx(np.mean(right), abs=0.01)
    assert last["worst_nodes_accuracy"] == pytest.approx(min(right), abs=0.02) and min(right) < np.mean(right)
    assert {"node_accuracy", "worst_nodes_accuracy", "node_accuracy_std"} <= {
        quantity.key for quantity in plotted(RunFolder(tmp_path).quantities(e))
    }
    assert run(e.but(metrics="")).summary.weights_sha256 == result.summary.weights_sha256


def test_fairness_of_many_nodes_is_that_of_a_thousand():
    few = {"fraction": 0.002, "samples_per_node": 20, "epochs": 1}
    loop = begun(e := Experiment(metrics="node-fairness", model="mlr", nodes=3000, **few), *_parts(e))
    work = next(work for work in iter(loop.ask, None) if loop.tell(loop.evaluator.answer(work)) or work.test)
    assert len(set(work.own_tests)) == 1000 and work.own_tests[0] == 0 and work.own_tests[-1] == 2999


def _parts(e):
    population = build_population(e)
    return population, Worker(e, population)


def test_against_the_test_set_itself(mnist, tmp_path):
    e = Experiment(dataset="mnist", model="mlr", metrics=[*ALL.split(", "), KappaMetric], **SMALL)
    assert e.metrics == "balanced-accuracy,macro-f1,label-accuracy,examples.own_metric:KappaMetric"
    result = run(e, out=tmp_path)
    tested = [record for record in result.records if "balanced_accuracy" in record]
    assert [record.round for record in tested] == [2, 4]
    last, s = tested[-1], mnist
    x = (s.test_x.reshape(10000, -1) / 255 - s.mean) / s.deviation
    predicted = (x @ result.weights[:-10].reshape(10, 784).T + result.weights[-10:]).argmax(1)
    by_label = [float((predicted[s.test_y == label] == label).mean()) for label in range(10)]
    np.testing.assert_allclose(last["label_accuracy"], by_label, atol=2e-3)  # float64 here: a few near-ties differ
    assert last["balanced_accuracy"] == pytest.approx(np.mean(last["label_accuracy"]))
    shares = np.bincount(s.test_y) / 10000
    assert last.test_accuracy == pytest.approx(np.dot(shares, last["label_accuracy"]))
    declared = {quantity.key for quantity in plotted(RunFolder(tmp_path).quantities(e))}
    assert {"balanced_accuracy", "macro_f1", "lowest_label_accuracy", "cohens_kappa"} <= declared
    plain = run(e.but(metrics=""))
    assert plain.summary.weights_sha256 == result.summary.weights_sha256
    assert "metrics" not in plain.experiment.settings() and "macro_f1" not in plain.records[1]


def test_shares_of_the_work_add_up(mnist):
    e = Experiment(dataset="mnist", model="mlr", metrics=ALL, **SMALL)
    with one_thread():
        worker = Worker(e, build_population(e))
        weights, chunks = worker.initial_weights, tuple(range(worker.test_chunks))
        whole = worker.answer(Work(weights, 1, test=chunks))
        shares = [worker.answer(Work(weights, 1, test=chunks[k::3])) for k in range(3)]
    together = merged([*shares, worker.answer(Work(weights, 1, train=(0,)))], 0.0)
    assert np.array_equal(together.confusion, whole.confusion) and whole.confusion.sum() == 10000
    assert merged([worker.answer(Work(weights, 1, train=(0,)))], 0.0).confusion is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics": "f1"}, "^metrics: 'f1' is unknown; choose from balanced-accuracy"),
        ({"metrics": f"{HERE}:missing"}, "^metrics: .* cannot be imported"),
        ({"metrics": f"{HERE}:CONFUSION"}, "^metrics: .* is not a subclass of"),
        ({"metrics": "macro-f1", "dataset": "tests.small_data:Lines"}, "^metrics: .*is a regression"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(settings, message):
    with pytest.raises(InputError, match=message) as caught:
        run(Experiment(**SMALL | settings))
    assert "\n" not in str(caught.value)


def test_a_metric_that_returns_what_it_does_not_declare_is_blamed():
    with pytest.raises(UserCodeError, match=r"the metric returned \{'surprise': 1\}; it must return a dict"):
        run(Experiment(**SMALL, metrics=f"{HERE}:Loose"))
