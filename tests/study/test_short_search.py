"""A search with no more rounds than its grace period: allowed, and no trial is stopped early."""

import pandas as pd
import pytest
from ray.tune.schedulers import TrialScheduler

from fedpns_ray.study.search import early_stopping
from fedpns_ray.study.study_file import read_study
from fedpns_ray.study.user_search import Trap
from fedpns_ray.terminal.command_line import main

SEARCH = """
base: {nodes: 10, samples_per_node: 50, epochs: 1, rounds: 12, sigma: 0.3, alpha: 2, beta: 0.7}
search:
  space: {alpha: {min: 0.5, max: 4, step: 0.1}, beta: {min: 0, max: 1, step: 0.05}}
  target: 0.99
  trials: 3
  grace: 5
  confirm: 1
baseline: {alpha: 2, beta: 0.7}
targets: []
"""


@pytest.fixture
def search(tmp_path):
    (tmp_path / "s.yaml").write_text(SEARCH)
    return ["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o"), "--rounds", "3"]


class Reported:
    """All that the scheduler needs to know about a trial."""

    def __init__(self, number):
        self.trial_id = str(number)


@pytest.mark.parametrize(("rounds", "stopped_at"), [(1, []), (4, []), (5, []), (6, [5]), (12, [5])])
def test_trials_are_judged_only_where_rounds_are_left(tmp_path, rounds, stopped_at):
    """A better trial first, then a worse one: which of its rounds but the last end it?"""
    (tmp_path / "s.yaml").write_text(SEARCH)
    scheduler = early_stopping(read_study(tmp_path / "s.yaml", {"rounds": rounds}), Trap())
    ends = []
    for number, cost in ((1, 1.0), (2, 9.0)):
        trial = Reported(number)
        scheduler.on_trial_add(None, trial)
        for round in range(1, rounds + 1):
            report = {"round": round, "cost": cost}
            if scheduler.on_trial_result(None, trial, report) == TrialScheduler.STOP:
                ends += [round] if round < rounds else []
                break
    assert ends == stopped_at


def test_a_search_shorter_than_its_grace_period(cluster, search, tmp_path, capsys):
    assert main(search) == 0
    tried = pd.read_csv(tmp_path / "o" / "search.csv")
    assert list(tried["rounds"]) == [3] * 3
    confirmed = pd.read_csv(tmp_path / "o" / "study.csv")
    assert set(confirmed["status"]) == {"done"} and set(confirmed["rounds"]) == {3}
    capsys.readouterr()
    assert main([*search, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert (
        "a search: 3 suggestions before these, none stopped early: 3 rounds are within the grace period of 5" in shown
    )
