"""Search algorithms and schedulers as a user might bring them, right and wrong."""

from ray.tune.schedulers import FIFOScheduler, PopulationBasedTraining, TrialScheduler
from ray.tune.search import Searcher

POINTS = ({"alpha": 1.02}, {"alpha": 1.0}, {"alpha": 3.0}, {"alpha": 1.0}, {"alpha": 4.0})


class Listed(Searcher):
    """Always the same points: off the steps, repeated, and not aware of what was tried before."""

    def __init__(self):
        super().__init__()
        self._left = list(POINTS)

    def suggest(self, trial_id):
        return self._left.pop(0) if self._left else Searcher.FINISHED

    def on_trial_complete(self, trial_id, result=None, error=False):
        pass


class Outside(Listed):
    def suggest(self, trial_id):
        return {"alpha": 40}


class Elsewhere(Listed):
    def suggest(self, trial_id):
        return {"beta": 1}


class Clumsy(Listed):
    def suggest(self, trial_id):
        raise ValueError("a mistake")


class Needy(Listed):
    def __init__(self, friend):
        super().__init__()


class SecondRound(FIFOScheduler):
    """Stops every trial in its second round."""

    def on_trial_result(self, tune_controller, trial, result):
        return TrialScheduler.STOP if result["round"] >= 2 else TrialScheduler.CONTINUE


class Forgetful(SecondRound):
    def on_trial_result(self, tune_controller, trial, result):
        return self._nothing


class Pausing(SecondRound):
    def on_trial_result(self, tune_controller, trial, result):
        return TrialScheduler.PAUSE


class Unfinished(TrialScheduler):
    """Has no method of its own."""


class Population(PopulationBasedTraining):
    pass
