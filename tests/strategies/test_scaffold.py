"""SCAFFOLD: against a plain loop written from the paper, and what nodes keep across rounds and checkpoints."""

import numpy as np
import pytest
import torch

from fedpns_ray import Experiment, InputError, Interrupted, run
from fedpns_ray.core.models import model_for
from fedpns_ray.core.streams import stream
from fedpns_ray.core.training import Worker
from fedpns_ray.data import build_population
from fedpns_ray.runtime.driver import begun
from tests.test_run import untimed

SMALL = {"nodes": 8, "fraction": 0.5, "samples_per_node": 30, "epochs": 2, "rounds": 6, "model": "mlr", "lr": 0.05}


def plainly(e, population):
    """Algorithm 1 of the paper with option II, one sample at a time with autograd, in float64: (x, c, the c_i)."""
    n, m = e.nodes, e.per_round
    module = model_for(e, population.samples).double()
    x = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    c, own = torch.zeros_like(x), torch.zeros(n, len(x), dtype=torch.float64)
    for t in range(1, e.rounds + 1):
        drawn = sorted(stream(e.seed, "draw", t).choice(np.arange(n), size=m, replace=False).tolist())
        moved, changed = torch.zeros_like(x), torch.zeros_like(x)
        for i in drawn:
            features, labels = population.own(i)
            y, steps, shuffle = x.clone(), 0, stream(e.seed, "shuffle", t, i)
            for order in [shuffle.permutation(len(labels)) for _ in range(e.epochs)]:
                for first in range(0, len(order), e.batch_size):
                    batch = order[first : first + e.batch_size]
                    torch.nn.utils.vector_to_parameters(y, module.parameters())
                    module.zero_grad()
                    outputs = module(torch.tensor(features[batch], dtype=torch.float64))
                    torch.nn.functional.cross_entropy(outputs, torch.tensor(labels[batch])).backward()
                    gradient = torch.cat([p.grad.flatten() for p in module.parameters()])
                    y, steps = y - e.lr_at(t) * (gradient - own[i] + c), steps + 1
            new = own[i] - c + (x - y) / (steps * e.lr_at(t))
            moved, changed = moved + (y - x), changed + (new - own[i])
            own[i] = new
        x, c = x + moved / m, c + changed / n
    return x.numpy(), c.numpy(), own.numpy()


def test_against_a_plain_loop():
    e = Experiment(strategy="scaffold", **SMALL)
    population = build_population(e)
    worker = Worker(e, population)
    loop = begun(e, population, worker)
    while (work := loop.ask()) is not None:
        loop.tell(worker.answer(work))
    x, c, own = plainly(e, population)
    assert np.abs(loop.weights - x).max() < 1e-6
    state = loop.checkpoint()
    assert np.abs(state["objective.c"] - c).max() < 1e-5
    kept = np.zeros_like(own)
    kept[state["state_nodes"]] = state["states_0"]
    assert np.abs(kept - own).max() < 1e-5 < np.abs(own).max()
    assert np.abs(kept.mean(axis=0) - state["objective.c"]).max() < 1e-6  # c is the mean over all nodes
    assert np.abs(run(e.but(strategy="fedavg"), progress=False).weights - x).max() > 1e-3


@pytest.mark.parametrize("more", [{"strategy": "scaffold", "model": "cnn-m"}, {"strategy": "fedpns", "server": "adam"}])
def test_resumed_to_the_same_bits(tmp_path, more):
    """With the model whose nodes train one by one, and with every other part that keeps a state."""
    e = Experiment(**{**SMALL, **more, "objective": "control-variates", "dataset": "synthetic"} | _fitting(more))
    whole, seen = run(e, progress=False), []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 3, progress=False)
    resumed = run(e, tmp_path / "r", progress=False)
    assert resumed.summary.weights_sha256 == whole.summary.weights_sha256
    assert untimed(resumed.records) == untimed(whole.records)


def _fitting(more):
    """CNN-M needs images."""
    return {"dataset": "mnist", "rounds": 4, "nodes": 4} if more.get("model") == "cnn-m" else {}


def test_vectors_sent_along_are_counted():
    device = {"devices": "log-normal", "device_fading": "none", "device_speed": 1e9}
    plain, along = (run(Experiment(strategy=s, **SMALL, **device), progress=False) for s in ("fedavg", "scaffold"))
    for key in ("bytes_up", "bytes_down"):
        assert [2 * record[key] for record in plain.records] == [record[key] for record in along.records]
    spent = [result.summary.simulated_seconds for result in (plain, along)]
    assert spent[1] == pytest.approx(2 * spent[0], rel=1e-3)


def test_a_node_that_does_not_send_keeps_what_it_had():
    e = Experiment(**SMALL, selection="largest-norm", candidates=8, objective="control-variates")
    population = build_population(e)
    worker = Worker(e, population)
    loop = begun(e, population, worker)
    while (work := loop.ask()) is not None and work.round < 2:
        loop.tell(worker.answer(work))
    assert len(loop.checkpoint()["state_nodes"]) == e.per_round < len(work.train) == 8
    assert sorted(work.states) == sorted(loop.checkpoint()["state_nodes"])


@pytest.mark.parametrize(
    "more, words",
    [
        ({"optimizer": "adam"}, "optimizer: 'adam' is not allowed; objective control-variates needs optimizer sgd"),
        ({"momentum": 0.9}, "momentum: 0.9 is not allowed; objective control-variates needs optimizer sgd without mom"),
    ],
)
def test_steps_that_gradients_cannot_be_read_from(more, words):
    with pytest.raises(InputError) as error:
        Experiment(strategy="scaffold", **more)
    assert words in str(error.value)
