"""This project as a side: rounds of an experiment, in one process or on a Ray with two actors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ray
import torch
from ray.util.placement_group import placement_group, remove_placement_group

from benchmarks.serving import Questions, Stopwatch
from benchmarks.task import experiment
from fedpns_ray.core.training import Worker
from fedpns_ray.data import Population, build_population
from fedpns_ray.experiment import Experiment
from fedpns_ray.runtime.driver import Driver
from fedpns_ray.runtime.in_process import NOWHERE, in_process
from fedpns_ray.runtime.layout import Layout, plan
from fedpns_ray.runtime.node_actors import Place, on_node_actors
from fedpns_ray.runtime.session import machines, session

UNTESTED = 10**9


def on_two_actors(e: Experiment, population: Population, stack: ExitStack) -> Driver:
    """An actor takes a quarter of a core in Ray's books: those of other experiments are there, too, but only wait."""
    layout = Layout(actors=2, cpus_per_actor=0.25)
    planned = plan(layout, machines(), e.nodes, e.trained_per_round)
    group = placement_group(list(planned.bundles), strategy="SPREAD")
    stack.callback(remove_placement_group, group)
    ray.get(group.ready(), timeout=60)
    place = Place(planned, group, f"bench {id(e)}")
    return stack.enter_context(on_node_actors(e, ray.put(population), place, NOWHERE))


def answering(begin: Callable[[Experiment, Population], Driver]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Answers questions of {model, rounds, test} and, if it has any, more settings."""
    begun: dict[str, tuple[Experiment, Population, Driver]] = {}

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        settings = question.get("settings", {})
        e = experiment(question["model"], evaluate_every=1 if question["test"] else UNTESTED, **settings)
        if str(e) not in begun:
            population = build_population(e)
            begun[str(e)] = e, population, begin(e, population)
        _, population, driver = begun[str(e)]
        if question.get("accuracy"):
            worker = Worker(e, population)
            tested = worker.test(driver._run.weights, range(worker.test_chunks))
            return {"accuracy": float(tested[:, 0].sum()) / worker.test_size}
        watch, phases = Stopwatch(), Counter[str]()
        for _ in range(question["rounds"]):
            record = driver.step()
            assert record is not None
            phases.update(record.seconds_by_phase)
        each = {phase: seconds / question["rounds"] for phase, seconds in phases.items()}
        return {**watch.per(question["rounds"]), "phases": each}

    return answer


def main(layout: str = "in process") -> None:
    torch.set_num_threads(1)
    if layout == "in process":
        Questions().serve(answering(lambda e, population: in_process(e, population)))
        return
    questions = Questions()
    with session(), ExitStack() as stack:
        questions.serve(answering(lambda e, population: on_two_actors(e, population, stack)))
