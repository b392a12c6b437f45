"""Tune's loop hears every report of every trial: what it does for one must not grow with the number of trials."""

from benchmarks.tune_loop import seconds_per_report, trial
from fedpns_ray.study import tune


def test_a_trials_experiment_is_built_once(monkeypatch):
    built, build = [], tune.experiment_of
    monkeypatch.setattr(tune, "experiment_of", lambda config: built.append(config) or build(config))
    seconds_per_report([trial(number) for number in range(1, 6)], rounds=20)
    assert len(built) == 5  # of 100 reports


def test_another_configuration_is_another_experiment():
    """Some schedulers change the configuration of a trial while it runs."""
    one = trial(1)
    relay = tune.Relay(tune.Watching(), None, None)
    before = relay.name(one)
    one.config = trial(2).config
    assert relay.name(one) != before
