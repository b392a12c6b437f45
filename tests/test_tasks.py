"""Tasks decide the loss and what is counted: numbers by hand, whole runs, and losses of one's own."""

import math

import numpy as np
import pytest
import torch

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core.tasks import TASKS, find_task
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population

SMALL = {"strategy": "fedpns", "rounds": 3, "nodes": 4, "fraction": 0.5, "lr": 0.1}
HERE = "tests.test_tasks"


def halved(outputs, targets):
    """Half of the cross entropy."""
    return torch.nn.functional.cross_entropy(outputs, targets) / 2


def of_two_arguments_too_few():
    return 0


def per_sample(outputs, targets):
    return outputs[:, 0]


def without_gradient(outputs, targets):
    return outputs.mean().detach()


SEVEN = 7


def test_what_is_counted_by_hand():
    outputs = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
    correct, loss = TASKS["classification"].tested(outputs, torch.tensor([0, 2]))
    assert correct == 1 and loss == pytest.approx(math.log(2) + math.log(10), rel=1e-6)
    both = outputs.unsqueeze(0)  # one sample with two positions
    correct, loss = TASKS["next-token"].tested(both, torch.tensor([[0, 2]]))
    assert correct == 0.5 and loss == pytest.approx((math.log(2) + math.log(10)) / 2, rel=1e-6)
    assert float(TASKS["next-token"].loss(both, torch.tensor([[0, 2]]))) == pytest.approx(float(loss), rel=1e-6)
    numbers, targets = torch.tensor([[1.0], [4.0], [2.0]]), torch.tensor([2.0, 2.0, 2.0])
    assert float(TASKS["regression"].loss(numbers, targets)) == pytest.approx(5 / 3)
    correct, loss = TASKS["regression"].tested(numbers, targets)
    assert math.isnan(correct) and loss == 5
    pairs = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert TASKS["regression"].tested(pairs, torch.zeros(2, 2))[1] == (1 + 4 + 9 + 16) / 2


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_regression_learns_and_has_no_accuracy(outputs, tmp_path):
    e = Experiment(dataset="tests.small_data:Lines", outputs=outputs, **SMALL)
    result = run(e, out=tmp_path)
    losses = [record.test_loss for record in result.records]
    assert losses[-1] < 0.05 < losses[0] and [record.test_accuracy for record in result.records] == [None] * 3
    summary = result.summary
    assert summary.final_accuracy is summary.best_accuracy is summary.last_accuracy is None
    assert summary.last_loss == losses[-1] and set(summary.rounds_to.values()) == {None}
    assert summary.population["q_dif_iid"] is None
    weights = result.weights[: 2 * outputs].reshape(outputs, 2)
    np.testing.assert_allclose(weights, [[2, -1]] if outputs == 1 else [[1, 1], [1, -1]], atol=0.15)


def test_an_mlr_of_a_regression_is_trained_by_autograd():
    """Its closed form is that of the cross entropy."""
    e = Experiment(dataset="tests.small_data:Lines", **SMALL).but(epochs=1, batch_size=30)
    population = build_population(e)
    worker = Worker(e, population)
    update = worker.train(worker.initial_weights, 1, [0])
    own, s = population.held_by(0), population.samples
    x, w, b = s.train_x[own], worker.initial_weights[:2], worker.initial_weights[2]
    error = x @ w + b - s.train_y[own]
    expected = -0.1 * 2 * np.array([*(error[:, None] * x).mean(axis=0), error.mean()])
    np.testing.assert_allclose(update.deltas[0], expected, atol=1e-6)
    assert update.losses[0] == pytest.approx(np.mean(error**2), rel=1e-5)


def test_every_position_of_a_text():
    e = Experiment(dataset="tests.small_data:Passages", samples_per_node=30, epochs=20, **SMALL).but(lr=5.0)
    records = run(e).records
    assert records[-1].test_accuracy == 1.0 and records[-1].test_loss < records[0].test_loss
    together = e.but(vectorize="on", rounds=1)
    alone = run(e.but(rounds=1))
    np.testing.assert_allclose(run(together).weights, alone.weights, atol=1e-5)


def test_a_loss_of_your_own():
    """Half of the loss with twice the learning rate is the same step."""
    settings = {"samples_per_node": 50, "nodes": 4, "fraction": 0.5, "rounds": 1, "epochs": 1, "strategy": "fedavg"}
    own = run(Experiment(loss=halved, lr=0.02, **settings))
    plain = run(Experiment(lr=0.01, **settings))
    assert own.experiment.settings()["loss"] == f"{HERE}:halved" and "loss" not in plain.experiment.settings()
    np.testing.assert_allclose(own.weights, plain.weights, atol=1e-6)
    assert own.records[0].test_loss == pytest.approx(plain.records[0].test_loss / 2, rel=1e-5)
    assert own.records[0].test_accuracy == plain.records[0].test_accuracy
    together = run(Experiment(loss=halved, lr=0.02, vectorize="on", **settings))
    np.testing.assert_allclose(together.weights, own.weights, atol=1e-6)


def test_a_folder_with_another_loss_is_not_continued(tmp_path):
    run(Experiment(dataset="tests.small_data:Texts", model=f"{HERE}:Bag", samples_per_node=20, **SMALL), out=tmp_path)
    other = Experiment(dataset="tests.small_data:Texts", model=f"{HERE}:Bag", samples_per_node=20, loss=halved, **SMALL)
    with pytest.raises(InputError, match="loss"):
        run(other.but(rounds=5), out=tmp_path)


class Bag(torch.nn.Module):
    """A guess from the last character."""

    def __init__(self, classes):
        super().__init__()
        self.table = torch.nn.Embedding(classes, classes)

    def forward(self, x):
        return self.table(x[:, -1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "mse"}, r"^loss: 'mse' is not allowed; it must be package.module:function"),
        ({"loss": f"{HERE}:missing"}, "^loss: .* cannot be imported"),
        ({"loss": f"{HERE}:SEVEN"}, "^loss: .* is an object of type int; it must be a function"),
        ({"loss": f"{HERE}:of_two_arguments_too_few"}, r"^loss: .* cannot be computed \(TypeError"),
        ({"loss": f"{HERE}:per_sample"}, r"^loss: .* returned an object of shape \(2,\); it must be a tensor with one"),
        ({"loss": f"{HERE}:without_gradient"}, r"^loss: .* it must be a tensor with one number"),
        ({"dataset": "tests.small_data:Lines", "outputs": 2, "classes": 3}, "^classes: 3 .* has 2 numbers"),
        ({"dataset": "tests.small_data:Lines", "partition": "shards"}, "^partition: .*it needs one label per sample"),
        ({"dataset": "tests.small_data:Passages", "partition": "dirichlet"}, "^partition: .*it needs one label"),
        (
            {"dataset": "tests.small_data:Passages", "model": "char-lstm"},
            r"outputs of shape \(12,\); it must be \(10",
        ),
        ({"dataset": "tests.small_data:Unheard"}, "^dataset: ranking is an unknown task; choose from classification"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(settings, message):
    with pytest.raises(InputError, match=message) as caught:
        run(Experiment(**{"samples_per_node": 20, **SMALL, **settings}))
    assert "\n" not in str(caught.value)


def test_a_task_keeps_its_own_loss_unless_told():
    assert find_task("next-token").is_cross_entropy(()) and not find_task("next-token").is_cross_entropy((5,))
    assert not find_task("classification", f"{HERE}:halved").is_cross_entropy(())
