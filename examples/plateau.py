"""A user-defined scheduler of a search: stops a trial whose cost has not fallen for some rounds.

    search:
      space: {alpha: {min: 0.5, max: 4, step: 0.1}}
      target: 0.8
      algorithm: random
      scheduler: examples.plateau:Plateau

A search gives a constructor those of `time_attr`, `metric`, `mode`, `max_t` (all rounds) and `grace_period` that it
takes. Trials report after every round; the scheduler lets them continue or stops them.
"""

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

PATIENCE = 10


class Plateau(FIFOScheduler):
    """Trials run in order; after the grace period, one that has not improved for `PATIENCE` rounds is stopped."""

    def __init__(self, time_attr, metric, grace_period):
        super().__init__()
        self._time, self._metric, self._grace = time_attr, metric, grace_period
        self._best = {}  # trial → its lowest cost, and the round in which it was first reached

    def on_trial_result(self, tune_controller, trial, result):
        now, cost = result[self._time], result[self._metric]
        best, since = self._best.get(trial.trial_id, (float("inf"), now))
        if cost < best:
            best, since = cost, now
        self._best[trial.trial_id] = best, since
        over = now >= self._grace and now - since >= PATIENCE
        return TrialScheduler.STOP if over else TrialScheduler.CONTINUE
