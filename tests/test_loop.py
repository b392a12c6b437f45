"""A run asks and is told: the conversation itself, without any machine."""

import itertools

import numpy as np
import pytest

from fedpns_ray import Experiment, run
from fedpns_ray.core.run import Run
from fedpns_ray.core.threads import one_thread
from fedpns_ray.core.training import Worker
from fedpns_ray.core.work import Work, merged
from fedpns_ray.data import build_population
from fedpns_ray.records.record import record_of
from fedpns_ray.records.summary import sha256
from fedpns_ray.runtime.driver import begun
from fedpns_ray.strategies import Selection
from tests.strategies.test_all import experiment
from tests.test_run import untimed

SMALL = {"nodes": 12, "fraction": 0.5, "samples_per_node": 40, "epochs": 1, "rounds": 5}


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def start(e) -> tuple[Run, Worker]:
    population = build_population(e)
    worker = Worker(e, population)
    return begun(e, population, worker), worker


def drive(run, answer):
    records = []
    while (work := run.ask()) is not None:
        round = run.tell(answer(work))
        if round:
            records.append(record_of(round, run.experiment.drop_probability > 0))
    return records


def test_training_and_testing_of_one_model_are_one_piece_of_work():
    loop, worker = start(Experiment(strategy="fedavg", **SMALL))
    asked = []
    records = drive(loop, lambda work: asked.append(work) or worker.answer(work))
    assert [(work.round, len(work.train), bool(work.test)) for work in asked] == [
        (1, 6, False), (2, 6, True), (3, 6, True), (4, 6, True), (5, 6, True), (5, 0, True)
    ]  # fmt: skip
    assert [record["round"] for record in records] == [1, 2, 3, 4, 5] and loop.over and loop.ask() is None


def test_asking_twice_is_asking_once():
    loop, worker = start(Experiment(strategy="fedpns", **SMALL))
    first = loop.ask()
    assert loop.ask() is first
    loop.tell(worker.answer(first))
    assert loop.ask() is loop.ask() is not first


@pytest.mark.parametrize("strategy", ["fedpns", "power-of-choice", "oort", "fedprox"])
def test_work_may_be_split_repeated_and_answered_in_any_order(strategy):
    """Each node and each chunk on its own, from the last to the first, some of them twice."""
    e = experiment(strategy, rounds=4)
    loop, worker = start(e)

    def answer(work):
        parts = [Work(work.weights, work.round, train=(node,)) for node in work.train]
        parts += [Work(work.weights, work.round, test=(chunk,)) for chunk in work.test]
        parts += [Work(work.weights, work.round, probe=(k,), probe_samples=work.probe_samples) for k in work.probe]
        for part in parts[:2]:
            worker.answer(part)  # answered, and the answer lost
        return merged([worker.answer(part) for part in reversed(parts)], 0.0)

    records = drive(loop, answer)
    whole = run(e)
    assert sha256(loop.weights) == whole.summary["weights_sha256"]
    assert untimed(records) == untimed(whole.records)


def test_a_draw_asks_for_what_it_needs_and_is_made_again():
    """Power-of-Choice looks at the losses of its candidates; the draw, being pure, is repeated with the answer."""
    loop, worker = start(experiment("power-of-choice", rounds=2))
    work = loop.ask()
    assert work.probe and not work.train and loop.tell(worker.answer(work)) is None
    work = loop.ask()
    assert work.train and not work.probe and set(work.train) < set(range(12))


def test_a_run_stands_at_the_round_that_it_has_just_told_of():
    """At no other moment is a checkpoint taken: it stands for exactly the records that are whole."""
    e = Experiment(strategy="fedpns", **SMALL)
    loop, worker = start(e)
    states = {}
    while (work := loop.ask()) is not None:
        round = loop.tell(worker.answer(work))
        if round:
            state = loop.checkpoint()
            assert int(state["round"]) == round.number
            states[round.number] = {key: np.array(value) for key, value in state.items()}
    for t, state in states.items():
        again, worker = start(e)
        again.restore(state)
        records = drive(again, worker.answer)
        assert [record["round"] for record in records] == list(range(t + 1, 6))
        assert sha256(again.weights) == sha256(loop.weights)


class Listener(Selection):
    """Draws as many nodes as the tenths of the last accuracy that it heard of."""

    name = "listener"
    awaits_test = True
    _accuracy: float = 0.0
    _count: int = 0

    def begin(self, nodes):
        self._count = nodes.count

    def draw(self, rng, probe):
        return range(1 + int(10 * self._accuracy))

    def hear(self, accuracy, loss):
        self._accuracy = accuracy


def test_a_selection_may_wait_for_the_test():
    e = Experiment(strategy="tests.test_loop:Listener", **SMALL)
    loop, worker = start(e)
    asked = []
    records = drive(loop, lambda work: asked.append(work) or worker.answer(work))
    assert [(work.round, bool(work.train), bool(work.test)) for work in asked[:4]] == [
        (1, True, False), (1, False, True), (2, True, False), (2, False, True)
    ]  # fmt: skip
    for before, after in itertools.pairwise(records):
        assert len(after["drawn"]) == 1 + int(10 * before["test_accuracy"])


def test_one_worker_answers_many_runs_in_turn():
    """Runs keep nothing in the worker: two conversations may be held at once."""
    e = Experiment(strategy="fedpns", **SMALL)
    one, worker = start(e)
    two, _ = start(e.but(strategy="fedavg"))
    while not (one.over and two.over):
        for loop in (one, two):
            if (work := loop.ask()) is not None:
                loop.tell(worker.answer(work))
    assert sha256(one.weights) == run(e).summary["weights_sha256"]
    assert sha256(two.weights) == run(e.but(strategy="fedavg")).summary["weights_sha256"]
