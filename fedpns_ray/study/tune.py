"""Ray Tune, as studies use it: quiet, its workers reused, its own files deleted.

Which trials are done is known from the run folders in the study's storage, never from Tune's state: a study needs no
pickle to be read or resumed, and seeds or values can be added to one that has finished.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import ray
from ray import cloudpickle, tune
from ray.exceptions import GetTimeoutError, NodeDiedError, TaskUnschedulableError
from ray.tune import Callback, CheckpointConfig, FailureConfig, RunConfig, Stopper, TuneConfig, Tuner
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedpns_ray.errors import InputError, Shown, one_line
from fedpns_ray.experiment import Experiment
from fedpns_ray.naming import folder_name
from fedpns_ray.records.storage import Storage
from fedpns_ray.runtime.deadlines import simulated_delay
from fedpns_ray.runtime.lookout import guarded, refuse_lost
from fedpns_ray.runtime.ray_private import failures_counted_by, quiet_tune
from fedpns_ray.study import failures
from fedpns_ray.study.machine_wait import MachineWait
from fedpns_ray.study.packing import Packing
from fedpns_ray.study.study_file import Trial
from fedpns_ray.study.trial import Terms, TrialReport, TrialRun, experiment_of
from fedpns_ray.study.trial_watch import TrialWatch

logger = logging.getLogger(__name__)

CHECK_EVERY = 0.5
"""Seconds between two looks at the deadlines of all running trials; Tune's loop takes a step for every report."""
SEEN_WITHIN = 60.0
"""Seconds for a machine to look at the study's storage."""


class Watch(Protocol):
    """Receives the progress of a study."""

    def begin(self, trials: Sequence[Trial], done: Iterable[str], packing: Packing) -> None:
        """These trials are about to run; `done` names those that are already finished."""
        ...

    def begin_search(self, tried: int, packing: Packing) -> None:
        """A search is about to run; so many of its suggestions have already been tried."""
        ...

    def update(self, name: str, experiment: Experiment, state: str, last: TrialReport) -> None:
        """`state`: running, done, diverged, failed, or waiting to be run again; `last`: the trial's last report."""
        ...

    def tick(self) -> None:
        """Called several times per second while trials run or wait."""
        ...


class Silent:
    """A watch that shows nothing."""

    def begin(self, trials: Sequence[Trial], done: Iterable[str], packing: Packing) -> None: ...

    def begin_search(self, tried: int, packing: Packing) -> None: ...

    def update(self, name: str, experiment: Experiment, state: str, last: TrialReport) -> None: ...

    def tick(self) -> None: ...


@dataclass(frozen=True)
class Watching:
    """How a study is followed while its trials run."""

    watch: Watch = field(default_factory=Silent)
    stop: Callable[[], bool] = lambda: False
    """Polled; True stops all trials, each with a checkpoint."""
    verbose: bool = False
    """Print Ray Tune's own log."""
    loggers: tuple[Callback, ...] = ()
    """Third-party loggers, as callbacks of Tune."""
    on_done: Callable[[Experiment, TrialReport], None] = lambda experiment, last: None
    """Called for every trial that is over."""


def tune_trials(
    space: dict[str, Any],
    terms: Terms,
    packing: Packing,
    watching: Watching,
    kind: Kind | None = None,
    **search: Any,
) -> dict[str, str]:
    """Run the trials of a space; returns the errors of those that failed permanently, by name.

    `kind`: what runs them, if they are not run one by one. `search` goes to TuneConfig: a search algorithm, a
    scheduler, the metric and the number of trials.
    """
    trainable, relayed_by = kind or Kind(TrialRun, Relay)
    quiet_tune(watching.verbose)
    logging.getLogger("ray.tune").setLevel(logging.INFO if watching.verbose else logging.CRITICAL)
    relay = relayed_by(watching, TrialWatch(terms.storage, terms.patience), MachineWait(packing))
    with tempfile.TemporaryDirectory(prefix="fedpns-tune-") as own, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuner = Tuner(
            tune.with_resources(tune.with_parameters(trainable, terms=terms), _resources(packing)),
            param_space=space,
            tune_config=TuneConfig(
                reuse_actors=packing.plan is None,
                trial_name_creator=_name,
                trial_dirname_creator=lambda trial: trial.trial_id,
                **search,
            ),
            run_config=RunConfig(
                name="tune",
                storage_path=own,
                failure_config=FailureConfig(max_failures=failures.RETRIES),
                checkpoint_config=CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                stop=_StopAll(watching.stop, relay.trials.stop),
                callbacks=[relay, *watching.loggers],
                verbose=2 if watching.verbose else 0,
            ),
        )
        counted = failures.Failures()
        try:
            with failures_counted_by(lambda trial, error: counted.count(trial, relay.name(trial), error)):
                guarded(tuner.fit)
        finally:
            relay.trials.close()
    if relay.errors:
        refuse_lost()
    return relay.errors


def _resources(packing: Packing) -> Any:
    """What Tune reserves for a trial; the trial itself takes nothing if its work is done by node actors."""
    if packing.plan:
        return PlacementGroupFactory([{}, *packing.bundles])
    if packing.on_cores is None:
        return PlacementGroupFactory(list(packing.bundles))
    return lambda config: PlacementGroupFactory(list(packing.bundles_of(experiment_of(config))))


def _name(trial: Any) -> str:
    return folder_name(experiment_of(trial.config))


class Relay(Callback):
    """Passes Tune's events on to the watch, and logs what trials have logged.

    It runs in Tune's only loop, for every report of every trial, so it builds the experiment of a trial once.
    """

    def __init__(self, watching: Watching, trials: TrialWatch, machines: MachineWait) -> None:
        self._watch, self._stop, self._on_done = watching.watch, watching.stop, watching.on_done
        self.trials, self._machines = trials, machines
        self.errors: dict[str, str] = {}
        self._known: dict[str, tuple[Any, Experiment, str]] = {}
        """By the trial's id: its configuration, and the experiment and the name that it means."""
        self._checked = float("-inf")

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its callbacks, but the copy is never used

    def _of(self, trial: Any) -> tuple[Experiment, str]:
        config, experiment, name = self._known.get(trial.trial_id) or (None, None, "")
        if experiment is None or config is not trial.config:  # some schedulers change a trial's configuration
            experiment = experiment_of(trial.config)
            name = folder_name(experiment)
            self._known[trial.trial_id] = trial.config, experiment, name
        return experiment, name

    def name(self, trial: Any) -> str:
        return self._of(trial)[1]

    def _update(self, trial: Any, state: str) -> str:
        experiment, name = self._of(trial)
        self._watch.update(name, experiment, state, TrialReport(trial.last_result or {}))
        return name

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._watch.tick()
        if time.monotonic() - self._checked < CHECK_EVERY:
            return
        self._checked = time.monotonic()
        running = [trial for trial in trials if trial.status == "RUNNING"]
        self.trials.check((trial, self.name(trial)) for trial in running)
        self._machines.check(bool(running) or self._stop())

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.errors.pop(self._update(trial, "running"), None)
        self.trials.started(trial, simulated_delay(self._of(trial)[0]))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        name = self._update(trial, "running")
        self.trials.reported(trial)
        for level, text in result.pop(TrialReport.messages, ()):  # not for third-party loggers
            logger.log(level, "%s: %s", name, text)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.trials.ended(trial)
        if not self._stop():  # otherwise Tune also reports trials as complete that it was told to stop
            last = TrialReport(trial.last_result or {})
            self._update(trial, "diverged" if last.diverged else "done")
            self._on_done(self._of(trial)[0], last)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.trials.ended(trial)
        self.errors[self._update(trial, "failed")] = reason(trial)


class Kind(NamedTuple):
    """What runs a trial of Tune's, and what passes on its reports."""

    trainable: type[TrialRun]
    relay: type[Relay]


def reason(trial: Any) -> str:
    """The error itself, without its traceback, from the file that Tune has just written on this machine."""
    if trial.pickled_error_file:
        error = cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
        cause = getattr(error, "cause", None) or error
        kind, text = type(cause).__name__, str(cause)
    else:
        kind, text = "TuneError", Path(trial.error_file).read_text()
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return f"{kind}: {lines[-1]}"[:300]


class _StopAll(Stopper):
    """Stops all trials when asked to."""

    def __init__(self, asked: Callable[[], bool], then: Callable[[], None]) -> None:
        self._asked, self._then = asked, then

    def __reduce__(self) -> Any:
        return _StopAll, (_never, _never)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        if self._asked():
            self._then()
            return True
        return False


def _never() -> bool:
    return False


def check_seen_by_all(storage: Storage) -> None:
    """Refuse a path that is not the same folder on every machine, and a URI that one of them cannot use."""
    mark = f".seen-by-all-{os.getpid()}"
    storage.write(mark, b"a study checks that all its machines see this folder\n")
    try:
        look = ray.remote(num_cpus=0, max_retries=0)(_sees)
        nodes = [node for node in guarded(ray.nodes) if node["Alive"]]
        answers = [
            look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
                storage, mark
            )
            for node in nodes
        ]
        for node, answer in zip(nodes, answers, strict=True):
            try:
                seen = guarded(ray.get, answer, timeout=SEEN_WITHIN)
            except GetTimeoutError:
                seen = f"no answer within {SEEN_WITHIN:.0f} s"
            except (TaskUnschedulableError, NodeDiedError):  # a machine that has just gone
                continue
            if seen is not True:
                raise InputError(
                    "out",
                    Shown(storage),
                    problem=f"is not seen by machine {node['NodeManagerHostname']} ({seen or 'it is not there'})",
                    hint="name a shared folder, or a URI such as s3://bucket/study",
                )
    finally:
        storage.delete(mark)


def _sees(storage: Storage, mark: str) -> bool | str:
    own = f"{mark}-{ray.get_runtime_context().get_node_id()}"
    try:
        if storage.read(mark) is None:
            return False
        storage.write(own, b"and that they may write there\n")
        storage.delete(own)
        return True
    except (InputError, OSError) as error:
        return one_line(error)
