"""The layout changes nothing but speed: the same weights and records, to the bit, wherever nodes live."""

import contextlib
import logging
import os
import re
import signal
import threading
import time
import urllib.request
from collections import Counter
from functools import partial

import pytest
import ray
import yaml
from ray.exceptions import ActorUnavailableError
from ray.util import list_named_actors

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.api import Interrupted
from fedpns_ray.records.storage import Storage
from fedpns_ray.runtime import layout
from fedpns_ray.runtime.hardware import cpu_kind
from fedpns_ray.study import engine
from fedpns_ray.study.study_file import read_study
from fedpns_ray.study.tune import Watching
from tests.test_run import untimed

Layout = partial(layout.Layout, cpu_fallback=True)
"""The GPUs of these machines are only numbers."""
SMALL = {"nodes": 4, "fraction": 0.75, "rounds": 4}
LONG = 100_000
"""Rounds of a run that is stopped before its end."""
MODELS = {
    "mlr": {"epochs": 3, "samples_per_node": 60},
    "cnn-m": {"dataset": "mnist", "samples_per_node": 40, "sigma": 0.5},
}


def experiment(strategy, model, **more):
    own = {"candidates": 4} if strategy == "bn2" else {}
    return Experiment(strategy=strategy, **{**SMALL, **MODELS[model], **own, **more})


def assert_same(one, two):
    assert one.summary["weights_sha256"] == two.summary["weights_sha256"]
    assert untimed(one.records) == untimed(two.records)
    assert one.summary["population"] == two.summary["population"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("strategy", ["fedavg", "fedpns", "bn2"])
def test_any_layout(cluster, mnist, strategy, model):
    e = experiment(strategy, model)
    alone = run(e)
    layouts = [Layout(actors=1), Layout(actors=2), Layout(nodes_per_actor=1)]
    if strategy == "fedpns":
        layouts += [Layout(gpus_per_actor=0.5), Layout(actors=2, gpus_per_actor=0.25, cpus_per_actor=0.5)]
    for tried in layouts:
        assert_same(run(e, layout=tried), alone)


def test_unequal_nodes_and_dropped_ones(cluster, mnist):
    e = experiment("fedpns", "cnn-m", size_spread=0.8, drop_probability=0.3)
    assert_same(run(e, layout=Layout(actors=2)), run(e))


def actors_of_the_run():
    """name → handle, of the run that is on."""
    found = {}
    for name in list_named_actors():
        with contextlib.suppress(ValueError):  # one of a former run, which has just gone
            found |= {name: ray.get_actor(name)} if "actor" in name else {}
    return found


def places():
    return ray.get([actor.describe.remote() for actor in actors_of_the_run().values()])


def look_at(e, look, layout, out=None):
    """What `look` returns while the run is on. News may come late and actors go when their run ends; so it goes on."""
    seen = []

    def on_round(record):
        if not seen:
            seen.append(look())

    with pytest.raises(Interrupted):
        run(e.but(rounds=LONG), out, on_round=on_round, stop=lambda: bool(seen), layout=layout)
    return seen[0]


def test_all_gpus_of_all_machines_are_used_evenly(cluster, caplog):
    e = experiment("fedavg", "mlr", nodes=16)
    eight = Layout(actors=8, gpus_per_actor=0.25, cpus_per_actor=0.1)
    carried = Counter((place["machine"], tuple(place["gpu_ids"])) for place in look_at(e, places, eight))
    caplog.clear()
    result = run(e, layout=eight)
    assert_same(result, run(e))
    assert len(carried) == 4 and set(carried.values()) == {2}  # 2 machines x 2 GPUs, 2 actors on each
    assert len({machine for machine, _ in carried}) == 2
    assert (
        caplog.messages.count(
            "GPUs are assigned, but torch sees no CUDA: nodes train on the CPU, as cpu_fallback allows"
        )
        == 1
    )
    assert result.summary["device"] == "cpu" and result.summary["gpu"] is None


@pytest.mark.parametrize("asked", [{}, {"gpus_per_actor": 0.25}, {"nodes_per_actor": 1}])
def test_a_gpu_without_cuda_is_refused(cluster, tmp_path, asked):
    """Nobody who pays for a GPU trains on the CPU without knowing."""
    wanted = "gpus: a share of a GPU is assigned on .*, but torch sees no CUDA there; .* or set cpu_fallback"
    with pytest.raises(InputError, match=wanted):
        run(experiment("fedavg", "mlr"), tmp_path / "r", layout=layout.Layout(**asked))
    e = experiment("fedavg", "mlr", rounds=2)
    result = run(e, tmp_path / "r2", layout=layout.Layout(actors=2, gpus_per_actor=0))
    assert result.summary["device"] == "cpu" and result.summary["cpu"] == cpu_kind() != ""


def test_actors_and_tasks_have_readable_names(cluster):
    names = sorted(look_at(experiment("fedpns", "mlr"), list_named_actors, Layout(actors=2)))
    assert len(names) == 3 and all(name.startswith("fedpns seed 1 (") for name in names)
    assert names[0].endswith("node actor 0") and names[1].endswith("node actor 1") and names[2].endswith("server")


def exported():
    """The gauges as Prometheus would read them from the machines of the cluster: name and run → value."""
    found = {}
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        with urllib.request.urlopen(address, timeout=60) as page:
            for line in page.read().decode().splitlines():
                if line.startswith("ray_fedpns_"):
                    found[line.split("{")[0], re.search(r'run="(.*?)"', line)[1]] = float(line.split()[-1])
    return found


def test_gauges_stay_exported_through_a_long_round(cluster, tmp_path):
    """This cluster exports what was set within the last 2 s; here a round does not end, and it is looked at after 4 s.

    What a machine exports may come late, where others use it; but what is not set again will never come.
    """

    def look():
        (place,) = places()
        os.kill(place["pid"], signal.SIGSTOP)
        try:
            time.sleep(4)
            deadline = time.monotonic() + 120
            while True:
                done = len((tmp_path / "r" / "rounds.jsonl").read_bytes().splitlines())
                values = {name: value for (name, run), value in exported().items() if run.startswith("fedpns seed 1 (")}
                if values.get("ray_fedpns_round") == done or time.monotonic() > deadline:
                    return values, done
                time.sleep(0.5)
        finally:
            os.kill(place["pid"], signal.SIGCONT)

    e = experiment("fedpns", "mlr", nodes=4, fraction=0.5)
    values, done = look_at(e, look, Layout(actors=1, patience=600), tmp_path / "r")
    assert values["ray_fedpns_round"] == done >= 1 and values["ray_fedpns_seconds"] >= 0


def test_trials_export_gauges_too(cluster, tmp_path):
    found = {}

    class Look:
        def begin(self, *what):
            pass

        def update(self, *what):
            pass

        def tick(self):
            found.update(exported())

    e = experiment("fedpns", "mlr", nodes=4, fraction=0.5, rounds=100, slow_fraction=1.0, slow_seconds=0.5)
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"base": e.settings(), "seeds": 1, "gpus_per_trial": 0}))
    study = read_study(tmp_path / "s.yaml")
    wanted = [(f"ray_fedpns_{what}", study.trials[0].name) for what in ("round", "test_accuracy")]
    both = Watching(Look(), stop=lambda: found.keys() >= set(wanted))  # an export may come late
    engine.run_study(study, Storage(tmp_path / "o"), both)
    round, accuracy = (found[one] for one in wanted)
    assert 1 <= round <= 100 and 0 < accuracy <= 1


def test_a_layout_that_does_not_fit_is_refused_at_once(cluster, tmp_path):
    with pytest.raises(InputError, match="actors: 9 actors with 1 CPU and 200 MB each do not fit; 4 CPUs, 4 GPUs"):
        run(experiment("fedavg", "mlr"), tmp_path / "r", layout=Layout(actors=9, cpus_per_actor=1, gpus_per_actor=0))
    assert not (tmp_path / "r").exists()


class Mischief:
    """Does something bad to a running run, once, when a round is reported."""

    def __init__(self, *deeds):
        self.deeds = dict(deeds)

    def __call__(self, record):
        deed = self.deeds.pop(record["round"], None)
        if deed:
            deed()


def ask(who, what):
    """The answer of an actor of the run that is on; one that was just lost is asked again."""
    deadline = time.monotonic() + 120
    while True:
        name = next(name for name in list_named_actors() if name.endswith(who))
        try:
            return ray.get(getattr(ray.get_actor(name), what).remote())
        except ActorUnavailableError:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def kill(k):
    return lambda: os.kill(ask(f"node actor {k}", "describe")["pid"], signal.SIGKILL)


def test_killed_actors(cluster, mnist, caplog):
    e = experiment("fedpns", "cnn-m", rounds=20, samples_per_node=200)
    mischief = Mischief((2, kill(0)), (4, kill(1)), (10, kill(0)))
    with caplog.at_level(logging.INFO, "fedpns_ray"):
        disturbed = run(e, on_round=mischief, layout=Layout(actors=2))
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert not mischief.deeds
    assert sum(level == "WARNING" and text.endswith("was lost; its nodes train elsewhere") for level, text in said) >= 2
    assert any(level == "INFO" and text.endswith("is back") for level, text in said), said
    assert_same(disturbed, run(e))


def test_a_killed_server_goes_on_from_its_checkpoint(cluster, tmp_path):
    e = experiment("fedpns", "mlr", rounds=300, samples_per_node=800)
    pids, rounds = [], []

    def pid():
        pids.append(ask("server", "pid"))

    def deed():
        pid()
        os.kill(pids[0], signal.SIGKILL)

    mischief = Mischief((15, deed), (150, pid))

    def on_round(record):
        rounds.append(record["round"])
        mischief(record)

    disturbed = run(e, tmp_path / "r", on_round=on_round, layout=Layout(actors=2))
    assert len(set(pids)) == 2 and rounds == list(range(1, 301))
    assert_same(disturbed, run(e))


def test_a_stopped_process_only_delays(cluster):
    e = experiment("fedavg", "mlr", rounds=800)
    timers = []

    def deed():
        pid = places()[0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        timers.append(threading.Timer(2.0, os.kill, (pid, signal.SIGCONT)))
        timers[0].start()

    result = run(e, on_round=Mischief((2, deed)), layout=Layout(actors=2))
    assert max(record["seconds"] for record in result.records) > 1.5
    assert_same(result, run(e))


def test_a_lost_machine(cluster, mnist, caplog):
    """Last in this file: afterwards the cluster has one machine less."""
    e = experiment("fedpns", "cnn-m", rounds=20, samples_per_node=200)
    machines = []
    lost = next(iter(cluster.worker_nodes))

    def deed():
        machines.extend(place["machine"] for place in places())
        cluster.remove_node(lost, allow_graceful=False)

    disturbed = run(e, on_round=Mischief((3, deed)), layout=Layout(actors=4, cpus_per_actor=1))
    assert len(set(machines)) == 2 and any("was lost" in message for message in caplog.messages)
    assert_same(disturbed, run(e))
