"""What a report of a trial costs in Tune's loop, beside Tune's own work: one process for all trials of a study.

Every trial reports once per second. The loop builds a trial's experiment and its name once; the figure says what it
would cost to build them twice per report, as it once did.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from benchmarks.harness import Costs, Entry, Figure, Setting
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import folder_name
from fedpns_ray.records.storage import Storage
from fedpns_ray.study.machine_wait import MachineWait
from fedpns_ray.study.packing import Packing
from fedpns_ray.study.trial import TrialReport, experiment_of
from fedpns_ray.study.trial_watch import TrialWatch
from fedpns_ray.study.tune import CHECK_EVERY, Relay, Watching


def trial(number: int) -> Any:
    """What Tune's callbacks are given, as far as ours read it."""
    settings = Experiment(strategy="fedpns", seed=number).settings()
    report = {TrialReport.round: 7, TrialReport.best_accuracy: 0.5}
    actor = SimpleNamespace(ray_actor=None)
    config = {"experiment": settings}
    return SimpleNamespace(
        trial_id=f"{number:05d}", config=config, status="RUNNING", last_result=report, temporary_state=actor
    )


def relay_of(trials: list[Any], folder: str) -> Relay:
    """What hears of these trials; they have just been started."""
    watch = TrialWatch(Storage(folder), 600.0)
    relay = Relay(Watching(), watch, MachineWait(Packing(({"CPU": 1.0},), 1)))
    for one in trials:
        relay.on_trial_start(0, trials, one)
    return relay


def seconds_per_report(trials: list[Any], rounds: int = 10) -> float:
    """A trial's report, and the end of Tune's step after it."""
    with tempfile.TemporaryDirectory() as folder:
        relay = relay_of(trials, folder)
        began = time.process_time()
        for _ in range(rounds):
            for one in trials:
                relay.on_trial_result(0, trials, one, dict(one.last_result))
                relay.on_step_end(0, trials)
        return (time.process_time() - began) / (rounds * len(trials))


def seconds_per_look(trials: list[Any], looks: int = 5) -> float:
    """A look at the deadlines of all trials, which the first step takes and later ones every CHECK_EVERY seconds."""
    spent = 0.0
    for _ in range(looks):
        with tempfile.TemporaryDirectory() as folder:
            relay = relay_of(trials, folder)
            began = time.process_time()
            relay.on_step_end(0, trials)
            spent += time.process_time() - began
    return spent / looks


def seconds_per_experiment(trials: list[Any]) -> float:
    began = time.process_time()
    for one in trials:
        folder_name(experiment_of(one.config))
    return (time.process_time() - began) / len(trials)


def measure(setting: Setting) -> Iterator[Costs]:
    """Seconds of a core that all reports of a second take: what our part of the loop takes of a core."""
    for _ in range(setting.repeats):
        found = {}
        for count in COUNTS:
            trials = [trial(number) for number in range(1, count + 1)]
            found[f"built {count}"] = 2 * count * seconds_per_experiment(trials)
            found[f"now {count}"] = count * seconds_per_report(trials) + seconds_per_look(trials) / CHECK_EVERY
        yield found | {"a core": 1.0}


COUNTS = (20, 100, 400)
ENTRIES = (
    Entry(
        "tune-loop",
        "Tune's loop with trials that report once per second: CPU time of our part",
        (
            Figure("building experiments twice per report, 400 trials", "built 400", "now 400", at_least=100),
            *(Figure(f"of a core, {count} trials", f"now {count}", "a core", at_most=0.01) for count in COUNTS),
        ),
        measure,
        repeats=3,
    ),
)
