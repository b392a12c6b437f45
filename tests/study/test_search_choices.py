"""The algorithm and the scheduler of a search: by name or import path, run, resumed, and refused with a reason."""

import itertools
import sys
from pathlib import Path

import pandas as pd
import pytest
from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler
from ray.tune.search.optuna import OptunaSearch

from fedpns_ray import InputError
from fedpns_ray.errors import UserCodeError
from fedpns_ray.records.storage import Storage
from fedpns_ray.runtime.session import machines
from fedpns_ray.study.packing import pack
from fedpns_ray.study.search import Suggestion, Suggestions, early_stopping, run_search, suggesting
from fedpns_ray.study.search_names import ALGORITHMS, SCHEDULERS
from fedpns_ray.study.study_file import read_study
from fedpns_ray.study.trial import Terms
from fedpns_ray.study.tune import Watching
from fedpns_ray.study.user_search import Trap
from fedpns_ray.terminal.command_line import main
from tests.study.test_short_search import Reported

ROOT = Path(__file__).parents[2]
SEARCH = """
base: {nodes: 4, samples_per_node: 20, epochs: 1, rounds: 3, alpha: 2, beta: 0.7}
search:
  space: {alpha: {min: 1, max: 3, step: 1}, beta: {min: 0.5, max: 0.7, step: 0.1}}
  target: 0.99
  grace: 1
  confirm: 1
  KEYS
seeds: 1
baseline: {alpha: 2, beta: 0.7}
targets: []
"""
ONE = SEARCH.replace(", beta: {min: 0.5, max: 0.7, step: 0.1}}", "}").replace("max: 3", "max: 4")
MINE = "tests.study.searches"
GRID = [{"alpha": alpha, "beta": beta} for alpha in (1.0, 2.0, 3.0) for beta in (0.5, 0.6, 0.7)]


def study(tmp_path, keys="", text=SEARCH, **options):
    (tmp_path / "s.yaml").write_text(text.replace("KEYS", keys.replace(", ", "\n  ")))
    return read_study(tmp_path / "s.yaml", **options)


def suggested(study, count, history=()):
    """What is suggested if every suggestion is over before the next one is asked for."""
    searcher, found = suggesting(study, list(history), Trap()), []
    for number in range(count):
        settings = searcher.suggest(f"trial {number}")
        if not isinstance(settings, dict):
            break
        found.append(settings)
        cost = {"cost": sum(settings.values()), "training_iteration": 1}
        searcher.on_trial_result(f"trial {number}", cost)
        searcher.on_trial_complete(f"trial {number}", cost)
    return found


def tried(settings):
    return Suggestion(settings, 3, 0.1, sum(settings.values()))


# --- what is suggested ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("algorithm", "scheduler"), list(itertools.product(ALGORITHMS, SCHEDULERS)))
def test_every_algorithm_with_every_scheduler(tmp_path, algorithm, scheduler):
    s = study(tmp_path, f"algorithm: {algorithm}, scheduler: {scheduler}")
    assert len(suggested(s, 9)) == 9
    kind = {"asha": ASHAScheduler, "median": MedianStoppingRule, "none": FIFOScheduler}[scheduler]
    assert type(early_stopping(s, Trap())) is kind


def test_the_default_is_optuna_as_it_was(tmp_path):
    s = study(tmp_path)
    assert (s.search.algorithm, s.search.scheduler, s.search.trials) == ("optuna", "asha", 30)
    history = [tried(settings) for settings in suggested(s, 12)]
    assert history[0].settings == {"alpha": 2.0, "beta": 0.7}
    space = {"alpha": tune.quniform(1, 3, 1), "beta": tune.quniform(0.5, 0.7, 0.1)}
    for own, before in (([history[0].settings], []), ([], history)):
        plain = OptunaSearch(space, metric="cost", mode="min", points_to_evaluate=own, seed=1 + len(before))
        for suggestion in before:
            plain.add_evaluated_point(suggestion.settings, suggestion.cost)
        for number, settings in enumerate(suggested(s, 12, before)):
            assert plain.suggest(str(number)) == settings
            plain.on_trial_complete(str(number), {"cost": sum(settings.values())})


@pytest.mark.filterwarnings("ignore:Fixed parameter")
def test_settings_of_its_own_off_the_steps_do_not_hinder_resumption(tmp_path):
    s = study(tmp_path, text=SEARCH.replace("alpha: 2, beta: 0.7}\nsearch", "alpha: 2.5, beta: 0.7}\nsearch"))
    history = [tried(settings) for settings in suggested(s, 3)]
    assert history[0].settings == {"alpha": 2.5, "beta": 0.7} and len(suggested(s, 3, history)) == 3


def test_a_grid_is_every_point_in_a_fixed_order(tmp_path):
    s = study(tmp_path, "algorithm: grid")
    assert s.search.trials == 9 and suggested(s, 99) == GRID
    history = [tried(settings) for settings in (GRID[0], GRID[5], GRID[5], {"alpha": 9.0, "beta": 0.5})]
    assert s.search.left(suggestion.settings for suggestion in history) == 7
    assert suggested(s, 99, history) == [point for point in GRID if point not in (GRID[0], GRID[5])]
    assert study(tmp_path, "algorithm: grid, trials: 500").search.trials == 9


def test_random_points_are_seeded_and_never_repeated(tmp_path):
    s = study(tmp_path, "algorithm: random")
    found = suggested(s, 99)
    assert s.search.trials == 9 and found[0] == {"alpha": 2.0, "beta": 0.7}
    assert sorted(map(str, found)) == sorted(map(str, GRID)) and found != GRID
    assert suggested(s, 99) == found
    assert suggested(s, 99, map(tried, found[:4])) == found[4:]  # as if it had not been interrupted
    assert suggested(s, 99, map(tried, reversed(found[2:5]))) == found[:2] + found[5:]
    assert suggested(study(tmp_path, "algorithm: random", seeds=2), 99) != found


def test_equal_points_do_not_run_at_once(tmp_path):
    s = study(tmp_path, f"algorithm: '{MINE}:Listed'", ONE)
    searcher = suggesting(s, [], Trap())
    assert searcher.suggest("a") == {"alpha": 2.0}  # the study's own
    assert searcher.suggest("b") == {"alpha": 1.0}
    assert searcher.suggest("c") is None  # the same again
    searcher.on_trial_complete("b", {"cost": 7.0})
    assert searcher.suggest("c") == {"alpha": 3.0} and searcher.suggest("d") == {"alpha": 4.0}
    assert searcher.suggest("e") == "FINISHED"


def test_tunes_own_searcher_by_import_path(tmp_path):
    s = study(tmp_path, "algorithm: 'ray.tune.search.optuna:OptunaSearch'")
    found = suggested(s, 9)
    assert sorted(map(str, found)) == sorted(map(str, GRID))  # where `optuna` itself would repeat points
    assert not any(point in found[:5] for point in suggested(s, 4, map(tried, found[:5])))


# --- what is refused --------------------------------------------------------------------------------------------------

POPULATION = (
    "is not allowed; it changes settings in mid-run and copies weights between trials, so that no trial would be one "
    "experiment: none could be paired with the baseline, or run again to the bit; choose from asha, median, none"
)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("scheduler: pbt", f"line 8: search.scheduler: pbt {POPULATION}"),
        (f"scheduler: '{MINE}:Population'", f"line 8: search.scheduler: {MINE}:Population {POPULATION}"),
        (
            "trials: 3, scheduler: hyperband",
            "line 9: search.scheduler: hyperband is not allowed; it sets trials aside until others have caught up, "
            "while here every trial keeps its worker to its end; choose from asha, median, none",
        ),
        (
            "trials: 3, algorithm: Gird",
            "line 9: search.algorithm: 'Gird' is unknown; choose from optuna, random, grid, or package.module:Class; "
            "did you mean grid?",
        ),
        (
            "scheduler: best",
            "line 8: search.scheduler: 'best' is unknown; choose from asha, median, none, or package.module:Class",
        ),
        ("scheduler:", "line 8: search.scheduler: None is not allowed; it must be text"),
        (
            f"algorithm: '{MINE}:SecondRound'",
            f"line 8: search.algorithm: {MINE}:SecondRound is not a subclass of ray.tune.search.Searcher",
        ),
        (
            f"scheduler: '{MINE}:Listed'",
            f"line 8: search.scheduler: {MINE}:Listed is not a subclass of ray.tune.schedulers.TrialScheduler",
        ),
        (
            f"scheduler: '{MINE}:POINTS'",
            f"line 8: search.scheduler: {MINE}:POINTS is not a subclass of ray.tune.schedulers.TrialScheduler",
        ),
        (
            f"algorithm: '{MINE}:Missing'",
            f"line 8: search.algorithm: {MINE}:Missing cannot be imported (AttributeError: module "
            f"'{MINE}' has no attribute 'Missing')",
        ),
        (
            f"algorithm: '{MINE}:Needy'",
            f"line 8: search.algorithm: {MINE}:Needy needs friend, which a study file cannot give; name a subclass "
            "whose constructor sets it",
        ),
        (
            "algorithm: grid, trials: 8",
            "line 9: search.trials: 8 is not allowed; the grid has 9 points, and all are tried; leave trials out, or "
            "search at random",
        ),
    ],
)
def test_refused_in_one_line(tmp_path, keys, message):
    with pytest.raises(InputError) as caught:
        study(tmp_path, keys)
    assert str(caught.value) == f"{tmp_path / 's.yaml'}: {message}"


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ("alpha: {min: 3, max: 1, step: 1}", "alpha.max: 1 is not allowed; it must be at least min, which is 3"),
        ("alpha: {min: 1, max: 3.5, step: 1}", "alpha.step: 1 is not allowed; max, which is 3.5, must be a multiple"),
        (
            "alpha: {min: 0, max: 1, step: 0}",
            "alpha.step: 0 is not allowed; it must be greater than or equal to 0.0",
        ),
        ("alpha: {min: 0, max: 1.0e+300, step: 1}", "alpha.step: 1 is not allowed; max, which is 1e+300, must"),
        ("alhpa: {min: 0, max: 1, step: 1}", "alhpa: is not a number that can be searched over; did you mean alpha?"),
        ("strategy: {min: 0, max: 1, step: 1}", "strategy: is not a number that can be searched over; choose from"),
        ("beta: {min: 0, max: 3, step: 1}", "beta: 3.0 is not allowed; it must be less than or equal to 1"),
        ("nodes: {min: 4, max: 5, step: 0.5}", "nodes: 4.5 is not allowed; it must be a whole number"),
    ],
)
def test_impossible_spaces_are_refused_before_anything_starts(tmp_path, span, message):
    with pytest.raises(InputError) as caught:
        study(tmp_path, text=ONE.replace("alpha: {min: 1, max: 4, step: 1}", span))
    assert str(caught.value).startswith(f"{tmp_path / 's.yaml'}: line 4: search.space.{message}")


def test_a_grid_is_counted_before_it_is_listed(tmp_path):
    huge = SEARCH.replace("max: 3, step: 1", "max: 1000001, step: 0.000001")
    with pytest.raises(InputError) as caught:
        study(tmp_path, "algorithm: grid", huge)
    assert str(caught.value) == (
        f"{tmp_path / 's.yaml'}: line 4: search.space: a grid of it has 3,000,000,000,003 points; "
        "there may be at most 100,000"
    )
    assert len(suggested(study(tmp_path, "algorithm: random", huge), 5)) == 5


def test_reading_imports_nothing(tmp_path):
    sys.modules.pop(MINE, None)
    keys = f"algorithm: '{MINE}:Listed', scheduler: 'no.such.module:Scheduler'"
    assert study(tmp_path, keys, importing=False).search.algorithm == f"{MINE}:Listed"
    assert MINE not in sys.modules


def test_the_documentation_lists_every_name():
    page = (ROOT / "docs" / "searches.md").read_text()
    for name, named in (ALGORITHMS | SCHEDULERS).items():
        assert f"| `{name}` | {named.what} |" in page


# --- a user's mistakes ------------------------------------------------------------------------------------------------


def one_line(s, trap):
    with pytest.raises(InputError) as caught:
        trap.release(s.search)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Clumsy", "searches.py, line 35, in suggest: ValueError: a mistake"),
        ("Outside", "Outside suggested {'alpha': 40}; alpha must be between 1 and 4"),
        ("Elsewhere", "Elsewhere suggested {'beta': 1}; it must suggest alpha"),
    ],
)
def test_a_users_algorithm_fails(tmp_path, name, message):
    trap, s = Trap(), study(tmp_path, f"algorithm: '{MINE}:{name}'", ONE)
    searcher = suggesting(s, [tried({"alpha": 2.0})], trap)
    assert searcher.suggest("a") is None and message in one_line(s, trap)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Forgetful", "in on_trial_result: AttributeError: 'Forgetful' object has no attribute '_nothing'"),
        ("Pausing", "Pausing returned 'PAUSE'; a study's trials are not set aside: it must return CONTINUE or STOP"),
        ("Unfinished", f"search: {MINE}:Unfinished failed (NotImplementedError: NotImplementedError)"),
    ],
)
def test_a_users_scheduler_fails(tmp_path, name, message):
    trap, s = Trap(), study(tmp_path, f"scheduler: '{MINE}:{name}'", ONE)
    decision = early_stopping(s, trap).on_trial_result(None, Reported(1), {"round": 1, "cost": 5.0})
    assert decision == TrialScheduler.CONTINUE and message in one_line(s, trap)


def test_the_median_rule_sets_nothing_aside(tmp_path):
    """It would, while it knows fewer than three trials and others wait."""

    class Controller:
        def get_live_trials(self):
            return [type("Waiting", (), {"status": "PENDING"})]

    rule, trial = early_stopping(study(tmp_path, "scheduler: median"), Trap()), Reported(1)
    reports = [{"round": 1, "cost": 5.0}, {"round": 2, "cost": 4.0}]
    assert {rule.on_trial_result(Controller(), trial, report) for report in reports} == {TrialScheduler.CONTINUE}


# --- on Ray -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def search(cluster, tmp_path):
    """Runs a search with these keys, without its confirmation; returns what was tried, in order."""

    def run(keys, text=ONE):
        s, storage = study(tmp_path, keys, text), Storage(tmp_path / "o")
        run_search(s, Terms(storage, {}), pack(s, machines(whole=True)), Watching())
        return Suggestions(storage, s.search).all

    return run


def test_random_and_the_rest_as_a_grid(search):
    first = search("algorithm: random, scheduler: none, trials: 2")
    assert [s.rounds for s in first] == [3, 3] and {"alpha": 2.0} in [s.settings for s in first]
    second = search("algorithm: grid, scheduler: median")
    assert second[:2] == first and sorted(s.settings["alpha"] for s in second) == [1, 2, 3, 4]


def test_a_users_own_algorithm_and_scheduler(search, tmp_path, caplog):
    found = search(f"trials: 9, algorithm: '{MINE}:Listed', scheduler: '{MINE}:SecondRound'")
    assert sorted(s.settings["alpha"] for s in found) == [1, 2, 3, 4] and {s.rounds for s in found} == {2}
    assert "only 4 of 9 suggestions were tried" in caplog.messages
    with pytest.raises(UserCodeError, match=r"searches.py, line \d+, in on_trial_result: AttributeError"):
        search(f"trials: 5, algorithm: random, scheduler: '{MINE}:Forgetful'", ONE.replace("max: 4", "max: 9"))
    assert len(pd.read_csv(tmp_path / "o" / "search.csv")) == 4  # what was stopped was not tried


def test_the_example_from_the_command_line(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("examples.plateau.PATIENCE", 1)
    study(
        tmp_path,
        "trials: 2, algorithm: random, scheduler: 'examples.plateau:Plateau'",
        ONE.replace("rounds: 3", "rounds: 9"),
    )
    assert main(["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "o")]) == 0
    assert (pd.read_csv(tmp_path / "o" / "search.csv")["rounds"] < 9).any()
    assert set(pd.read_csv(tmp_path / "o" / "study.csv")["rounds"]) == {9}  # the confirmation is not judged


def test_a_regression_has_no_accuracy_to_search_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    path = tmp_path / "s.yaml"
    text = SEARCH.replace("KEYS", "algorithm: random").replace("base: {", "base: {dataset: 'tests.small_data:Lines', ")
    path.write_text(text)
    for more in ([], ["--dry-run"]):
        assert main(["study", str(path), "--out", str(tmp_path / "o"), *more]) == 2
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert "search.target: 0.99 is not allowed; dataset tests.small_data:Lines is a regression" in said
