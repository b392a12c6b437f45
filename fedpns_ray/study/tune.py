"""Ray Tune, as studies use it: quiet, its workers reused, its own files thrown away.

What is done is known from the run folders in the study's storage, never from Tune's state: so a study needs no pickle to be
read or resumed, and seeds or values can be added to one that has finished.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import ray
from ray import cloudpickle, tune
from ray.exceptions import NodeDiedError, TaskUnschedulableError
from ray.tune import Callback, CheckpointConfig, FailureConfig, RunConfig, Stopper, TuneConfig, Tuner
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedpns_ray.errors import InputError
from fedpns_ray.experiment import Experiment, folder_name
from fedpns_ray.records.storage import Storage
from fedpns_ray.runtime.lookout import guarded, refuse_lost
from fedpns_ray.study.packing import Packing
from fedpns_ray.study.study_file import Trial
from fedpns_ray.study.trial import Terms, TrialRun, experiment_of

RETRIES = 2
"""How often a failed trial is tried again; it resumes from its checkpoint."""


class Watch(Protocol):
    """Whoever is told of a study's progress."""

    def begin(self, trials: Sequence[Trial], done: Iterable[str], packing: Packing) -> None:
        """These trials, of which some are done."""
        ...

    def begin_search(self, tried: int, packing: Packing) -> None:
        """A search, of which some suggestions are tried."""
        ...

    def update(self, name: str, experiment: Experiment, state: str, last: dict[str, Any]) -> None:
        """`state` is running, done, diverged or failed; `last` is what the trial last reported: round, best_accuracy, cost."""
        ...

    def note(self, message: str) -> None:
        """Something that people should know."""
        ...

    def tick(self) -> None:
        """Called again and again while trials run or wait."""
        ...


class Silent:
    """A watch that tells nobody."""

    def begin(self, trials: Sequence[Trial], done: Iterable[str], packing: Packing) -> None: ...

    def begin_search(self, tried: int, packing: Packing) -> None: ...

    def update(self, name: str, experiment: Experiment, state: str, last: dict[str, Any]) -> None: ...

    def note(self, message: str) -> None: ...

    def tick(self) -> None: ...


def tune_trials(
    space: dict[str, Any],
    terms: Terms,
    packing: Packing,
    watch: Watch,
    stop: Callable[[], bool],
    on_done: Callable[[str, Experiment, dict[str, Any]], None] = lambda name, experiment, last: None,
    verbose: bool = False,
    loggers: tuple[Callback, ...] = (),
    **search: Any,
) -> dict[str, str]:
    """Run the trials of a space; gives back the errors of those that failed for good, by name.

    `on_done` hears of every trial that came to its end. `search` goes to TuneConfig: a search algorithm, a scheduler, the metric and the number of trials.
    """
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # `stop` is asked instead, and hears of SIGTERM too
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # the run folders hold all of it
    os.environ["RAY_AIR_NEW_OUTPUT"] = "1" if verbose else "0"  # the new one talks even when silent
    logging.getLogger("ray.tune").setLevel(logging.INFO if verbose else logging.CRITICAL)
    spread = packing.plan is not None
    resources = PlacementGroupFactory([{}, *packing.bundles] if spread else list(packing.bundles))
    relay = _Relay(watch, stop, on_done)
    with tempfile.TemporaryDirectory(prefix="fedpns-tune-") as own, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuner = Tuner(
            tune.with_resources(tune.with_parameters(TrialRun, terms=terms), resources),
            param_space=space,
            tune_config=TuneConfig(
                reuse_actors=not spread,
                trial_name_creator=_name,
                trial_dirname_creator=lambda trial: trial.trial_id,
                **search,
            ),
            run_config=RunConfig(
                name="tune",
                storage_path=own,
                failure_config=FailureConfig(max_failures=RETRIES),
                checkpoint_config=CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                stop=_StopAll(stop),
                callbacks=[relay, *loggers],
                verbose=2 if verbose else 0,
            ),
        )
        guarded(tuner.fit)
    if relay.errors:
        refuse_lost()
    return relay.errors


def _name(trial: Any) -> str:
    return folder_name(experiment_of(trial.config))


class _Relay(Callback):
    """Tune's events, in the study's own words."""

    def __init__(
        self, watch: Watch, stop: Callable[[], bool], on_done: Callable[[str, Experiment, dict[str, Any]], None]
    ) -> None:
        self._watch, self._stop, self._on_done = watch, stop, on_done
        self.errors: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps a copy of its callbacks, which nobody will need

    def _tell(self, trial: Any, state: str) -> str:
        name = _name(trial)
        self._watch.update(name, experiment_of(trial.config), state, trial.last_result or {})
        return name

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._watch.tick()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.errors.pop(self._tell(trial, "running"), None)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._tell(trial, "running")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if not self._stop():  # else Tune calls complete what it was told to stop
            name = self._tell(trial, "diverged" if (trial.last_result or {}).get("diverged") else "done")
            self._on_done(name, experiment_of(trial.config), trial.last_result)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        name = self._tell(trial, "failed")
        self.errors[name] = _reason(trial)


def _reason(trial: Any) -> str:
    """The error itself, without its traceback: from the file that Tune has just written here; its storage has it later."""
    if trial.pickled_error_file:
        error = cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
        cause = getattr(error, "cause", None) or error
        kind, text = type(cause).__name__, str(cause)
    else:
        kind, text = "TuneError", Path(trial.error_file).read_text()
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return f"{kind}: {lines[-1]}"[:300]


class _StopAll(Stopper):
    """Asks whether all should stop."""

    def __init__(self, asked: Callable[[], bool]) -> None:
        self._asked = asked

    def __reduce__(self) -> Any:
        return _StopAll, (_never,)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._asked()


def _never() -> bool:
    return False


def check_seen_by_all(storage: Storage) -> None:
    """A path must be the same folder on every machine; a URI is tried by each of them."""
    mark = f".seen-by-all-{os.getpid()}"
    storage.write(mark, b"a study looks whether all its machines see this folder\n")
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
                seen = guarded(ray.get, answer)
            except (TaskUnschedulableError, NodeDiedError):  # a machine that has just gone
                continue
            if seen is not True:
                raise InputError(
                    f"out: {storage} is not seen by machine {node['NodeManagerHostname']} ({seen or 'it is not there'}); "
                    "name a shared folder, or a URI such as s3://bucket/study"
                )
    finally:
        storage.delete(mark)


def _sees(storage: Storage, mark: str) -> bool | str:
    own = f"{mark}-{ray.get_runtime_context().get_node_id()}"
    try:
        if storage.read(mark) is None:
            return False
        storage.write(own, b"and whether they may write there\n")
        storage.delete(own)
        return True
    except (InputError, OSError) as error:
        return str(error)
