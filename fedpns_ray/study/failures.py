"""Which failures count against a trial: its own errors do, the loss of the machine under it does not.

Tune counts everything but preempted machines, so that on spot machines sound trials would be given up.
Here a trial is given up after RETRIES + 1 failures of its own: an exception, a worker that crashed or hung. What
happened to a machine that Ray has given up, because it ended, froze or was cut off, is its loss; so many losses of one
trial, MOST_LOSSES, are too many, whatever their cause.

Ray learns of a lost machine seconds after the connection to its workers breaks. So a worker that only cannot be
reached is not judged yet, and everything is judged again at the next failure, by what is known then.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from fedpns_ray.runtime.ray_private import machine_of

RETRIES = 2
"""How often a failed trial is retried; it resumes from its checkpoint."""
MOST_LOSSES = 20
"""Machines that one trial may lose; every further loss counts as a failure."""

logger = logging.getLogger(__name__)


class Failure(NamedTuple):
    """One failure of a trial."""

    machine: str = ""
    """Where its worker was, if that has died or cannot be reached; empty: the trial raised an error."""


class Failures:
    """The failures of all trials of a study."""

    def __init__(self) -> None:
        self._of: dict[str, list[Failure]] = {}

    def count(self, trial: Any, name: str, error: BaseException | None) -> int:
        """How many failures count against a trial, with the one that has just happened."""
        mine = self._of.setdefault(trial.trial_id, [])
        mine.append(_failure(error))
        dead = _lost_machines()
        losses = [failure for failure in mine if failure.machine in dead]
        undecided = isinstance(error, ActorUnavailableError) and mine[-1].machine not in dead
        if mine[-1].machine in dead:
            logger.warning(
                "the machine of %s was lost (%d of at most %d): it resumes elsewhere", name, len(losses), MOST_LOSSES
            )
        return len(mine) - min(len(losses), MOST_LOSSES) - undecided


def _failure(error: BaseException | None) -> Failure:
    cause = error.cause if isinstance(error, RayTaskError) else error  # of an actor that the trial has started
    if isinstance(cause, RayActorError) and not cause.actor_init_failed and cause.actor_id:
        return Failure(machine_of(cause.actor_id))
    return Failure()


def _lost_machines() -> set[str]:
    return {node["NodeID"] for node in ray.nodes() if not node["Alive"]}
