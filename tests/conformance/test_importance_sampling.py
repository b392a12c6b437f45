"""Importance sampling of a node's data (Rizk et al. 2021): probabilities, exact unbiasedness, training by oracle."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from fedpns_ray import Experiment
from fedpns_ray.conformance.enumeration import distribution
from fedpns_ray.core.drawn_samples import drawn_batches, gradient_norms, probabilities
from fedpns_ray.core.local_steps import local_samples
from fedpns_ray.core.models import FlatModel
from fedpns_ray.core.streams import stream
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population
from fedpns_ray.errors import UserCodeError
from fedpns_ray.strategies import Objective
from fedpns_ray.strategies.importance_sampling import ImportanceSampledObjective

DIFFERENCES = (
    "The text of the paper could be opened only as far as its introduction: samples with probability proportional to "
    "their gradients, without replacement. Here they are drawn with replacement, for which unbiased weights are exact.",
    "Norms are those under the round's global model, once per round, and mixed with a uniform share.",
    "The paper's choice of nodes is another part: `--selection optimal-sampling`.",
)
MODEL = {"nodes": 4, "samples_per_node": 9, "batch_size": 3, "epochs": 2, "lr": 0.1, "objective": "importance-sampled"}


def test_probabilities_by_hand():
    """Norms 1, 3, 0 and u = 1/10: 9/10 of 1/4, 3/4, 0, and 1/30 each."""
    found = ImportanceSampledObjective().probabilities(np.array([1.0, 3.0, 0.0]))
    np.testing.assert_allclose(found, [0.225 + 1 / 30, 0.675 + 1 / 30, 1 / 30])
    found = ImportanceSampledObjective(uniform_share=0.5).probabilities(np.array([1.0, 3.0]))
    np.testing.assert_allclose(found, [0.375, 0.625])
    assert ImportanceSampledObjective(uniform_share=1).probabilities(np.array([0.5, 0.1])).tolist() == [0.5, 0.5]
    small = ImportanceSampledObjective().probabilities(np.array([0.1, 0.3]))  # only proportions matter
    np.testing.assert_allclose(small, [0.275, 0.725])


def test_without_gradients_all_samples_are_alike():
    for norms in ([0.0, 0.0], [1.0, math.inf], [1.0, math.nan]):
        assert ImportanceSampledObjective().probabilities(np.array(norms)).tolist() == [0.5, 0.5]


def linear(seed=None):
    module = nn.Linear(2, 2)
    if seed is None:
        nn.init.zeros_(module.weight), nn.init.zeros_(module.bias)
    else:
        with torch.no_grad():
            for number, tensor in enumerate(module.parameters()):
                tensor.copy_(torch.from_numpy(stream(seed, "model", number).standard_normal(tensor.shape)))
    return FlatModel(module)


def test_gradient_norms_by_hand():
    """At w = 0, softmax is (1/2, 1/2), off by +-1/2 from any label: the norm is sqrt(1/2) sqrt(||x||^2 + 1)."""
    x, y = torch.tensor([[0.0, 0.0], [1.0, math.sqrt(2)], [2.0, 2.0]]), torch.tensor([0, 1, 0])
    np.testing.assert_allclose(gradient_norms(linear(), x, y), np.sqrt(0.5) * np.array([1, 2, 3]), rtol=1e-6)


def test_every_batch_is_unbiased():
    """All 3^2 batches of 2 of 3 samples, by their probability: the mean gradient is that of all 3, wherever w is."""
    x, y = torch.tensor([[0.0, 0.0], [1.0, 2.0], [-3.0, 1.0]]), torch.tensor([0, 1, 1])
    p = probabilities(ImportanceSampledObjective(), gradient_norms(linear(), x, y))
    assert p.max() > 2 * p.min()
    for seed in range(5):
        model = linear(seed)
        whole = float(model.loss_and_gradient(x, y)), model.gradient.double().numpy().copy()

        def batch(rng, model=model):
            ((at, factors),) = drawn_batches(rng, p, [2])
            loss = model.loss_and_gradient(x[at], y[at], torch.from_numpy(factors))
            return np.append(model.gradient.double().numpy(), float(loss))

        found = distribution(batch)
        assert found.exact and len(found.outcomes) == 9
        mean, _ = found.mean(lambda value: value)
        np.testing.assert_allclose(mean, [*whole[1], whole[0]], atol=1e-6)
        uniform = np.full(3, 1 / 3)
        if seed == 0:  # and the weights matter
            without = sum(chance * value for chance, value in _unweighted(model, x, y, p))
            assert np.abs(without - whole[1]).max() > 0.01
            assert not np.allclose(p, uniform)


def _unweighted(model, x, y, p):
    for k, chance in enumerate(p):
        model.loss_and_gradient(x[k : k + 1], y[k : k + 1])
        yield chance, model.gradient.double().numpy().copy()


def test_a_loss_that_knows_only_means():
    """A user's loss is asked about every sample by itself, and gives the same."""
    x, y, factors = torch.tensor([[1.0, 2.0], [-3.0, 1.0]]), torch.tensor([0, 1]), torch.tensor([0.5, 3.0])
    own = FlatModel(linear(1).module, loss=lambda outputs, targets: nn.functional.cross_entropy(outputs, targets))
    built_in = linear(1)
    assert float(own.loss_and_gradient(x, y, factors)) == pytest.approx(
        float(built_in.loss_and_gradient(x, y, factors))
    )
    torch.testing.assert_close(own.gradient, built_in.gradient)


def test_the_variance_is_lower_than_that_of_uniform_draws():
    x, y = torch.tensor([[0.0, 0.0], [0.1, 0.2], [-9.0, 9.0]]), torch.tensor([0, 1, 1])
    model = linear()
    spread = {}
    for name, p in (("norm", gradient_norms(model, x, y)), ("uniform", np.ones(3))):
        p = p / p.sum()
        one_by_one = [value / (3 * chance) for chance, value in _unweighted(model, x, y, p)]
        mean = sum(chance * value for chance, value in zip(p, one_by_one, strict=True))
        spread[name] = sum(c * np.square(v - mean).sum() for c, v in zip(p, one_by_one, strict=True))
    assert spread["norm"] < 0.5 * spread["uniform"]


def test_batches_have_the_sizes_of_epochs():
    found = drawn_batches(stream(1, "samples"), np.array([0.5, 0.25, 0.25]), [2, 2, 1])
    assert [len(at) for at, _ in found] == [2, 2, 1]
    for at, factors in found:
        np.testing.assert_allclose(factors, np.array([2 / 3, 4 / 3, 4 / 3])[at])


def oracle(x, y, start, classes, order, node, lr):
    """A node's local training in round 2 in plain numpy: softmax regression, two epochs of batches of 3 samples."""
    w, b = start[:-classes].reshape(classes, -1).copy(), start[-classes:].copy()

    def gradient(k):
        z = w @ x[k] + b
        p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        off = p - (np.arange(classes) == y[k])
        return np.outer(off, x[k]), off, -math.log(p[y[k]])

    norms = np.array([math.sqrt((gradient(k)[0] ** 2).sum() + (gradient(k)[1] ** 2).sum()) for k in order])
    size = len(y)
    chance = 0.9 * norms / norms.sum() + 0.1 / size
    drawn = stream(1, "samples", 2, node).choice(size, size=2 * size, p=chance)
    losses = []
    for first in [*range(0, size, 3), *range(size, 2 * size, 3)]:
        batch = drawn[first : min(first + 3, size if first < size else 2 * size)]
        found = [(1 / (size * chance[k]) / len(batch), gradient(order[k])) for k in batch]
        losses.append(sum(factor * loss for factor, (_, _, loss) in found))
        w -= lr * sum(factor * g for factor, (g, _, _) in found)
        b -= lr * sum(factor * g for factor, (_, g, _) in found)
    return np.concatenate([w.ravel(), b]) - start, np.mean(losses)


def test_training_against_plain_numpy():
    e = Experiment(**MODEL)
    with one_thread():
        population = build_population(e)
        worker = Worker(e, population)
        found = worker.train(worker.initial_weights, 2, range(4))
        again = worker.train(worker.initial_weights, 2, [3])
    assert worker.training == "one by one" and found.deltas[3].tobytes() == again.deltas[0].tobytes()
    for node in range(4):
        x, y = (np.asarray(part) for part in population.own(node))
        order = stream(1, "shuffle", 2, node).permutation(len(y))
        assert len(y) % 3
        start = worker.initial_weights.astype(float)
        delta, loss = oracle(x.astype(float), y, start, 10, order, node, e.lr_at(2))
        np.testing.assert_allclose(found.deltas[node], delta, atol=2e-5)
        assert found.losses[node] == pytest.approx(loss, rel=1e-4)


def test_the_pass_before_training_is_counted():
    """E D_i = 14 samples, and 7 whose gradients are looked at first."""
    assert local_samples(Experiment(**MODEL), np.array([7])).tolist() == [21]
    assert local_samples(Experiment(**MODEL | {"objective": "plain"}), np.array([7])).tolist() == [14]


class Wrong(Objective):
    name = "wrong"
    draws_samples = True

    def probabilities(self, norms):
        return norms


def test_impossible_probabilities_are_refused():
    for norms in ([0.2, 0.2], [1.5, -0.5], [math.nan, 1.0]):
        with pytest.raises(UserCodeError, match=r"must return 2 probabilities that sum to 1"):
            probabilities(Wrong(), np.array(norms))
