"""The sentence that answers a study's question."""

import numpy as np
import pandas as pd
import pytest

from fedpns_ray.reporting.tables import Results
from fedpns_ray.reporting.verdict import verdict
from fedpns_ray.study.comparison import comparison
from fedpns_ray.study.study_file import read_study

SETTINGS = {"nodes": "20", "samples_per_node": 50, "rounds": 3, "alpha": 3}


def judged(finals, strategies=("fedpns", "fedavg"), column="final_accuracy"):
    """`finals`: strategy → final accuracies (or losses) by seed."""
    study = comparison(SETTINGS, strategies, range(1, 1 + len(next(iter(finals.values())))))
    rows = [
        {"strategy": strategy, "seed": seed, "status": "done", "final_accuracy": None, column: value}
        for strategy, values in finals.items()
        for seed, value in enumerate(values, 1)
    ]
    return verdict(Results(study, pd.DataFrame(rows), pd.DataFrame()), pd.DataFrame())


def test_significant():
    said = judged({"fedpns": [0.76, 0.77, 0.78, 0.75, 0.76], "fedavg": [0.71, 0.72, 0.74, 0.70, 0.71]})
    assert said.startswith("fedpns beats fedavg by 4.80 ± 0.56 points of final accuracy over 5 seeds: significant")


def test_not_significant_and_few_seeds():
    said = judged({"fedpns": [0.76, 0.70, 0.74], "fedavg": [0.71, 0.72, 0.70]})
    assert "not significant (paired t-test, p = " in said and said.endswith("Fewer than 5 seeds say little.")


def test_one_seed():
    said = judged({"fedpns": [0.70], "fedavg": [0.72]})
    assert said == "fedavg is 2.00 points above fedpns on one seed: more seeds would tell whether that is chance."


def test_a_regression_is_judged_by_its_loss():
    finals = {"fedpns": [0.010, 0.012, 0.011], "fedavg": [0.020, 0.021, 0.022]}
    said = judged(finals, column="final_loss")
    assert said.startswith("fedpns beats fedavg by 0.0100 ± 0.0025 of final loss over 3 seeds: significant")
    said = judged({name: values[:1] for name, values in finals.items()}, column="final_loss")
    assert said.startswith("fedpns is 0.0100 of loss below fedavg on one seed")
    rows = pd.DataFrame({"pairs": [3, 3], "difference": [-0.1, 0.2], "p": [0.001, 0.5]})
    study = comparison(SETTINGS, ("fedpns", "fedavg"), range(1, 4))
    done = pd.DataFrame(
        {"status": ["done"], "final_accuracy": [None], "final_loss": [0.5], "strategy": ["fedpns"], "seed": [1]}
    )
    said = verdict(Results(study, done, pd.DataFrame()), rows)
    assert said.startswith("1 of 2 settings is below the baseline (fedavg), 1 of them significantly; 0 are")
    assert said.endswith("significantly above it (final loss, paired by seed).")
    said = verdict(Results(study, done, pd.DataFrame()), rows[:1])
    assert said == "The one setting with a baseline (fedavg) is below it, significantly (final loss, paired by seed)."


def test_the_best_of_many_against_the_baseline():
    finals = {"fedpns": [0.7, 0.72], "bn2": [0.8, 0.83], "fedavg": [0.6, 0.62]}
    assert judged(finals, ("fedpns", "bn2", "fedavg")).startswith("bn2 beats fedavg by 20.50 ± ")


def test_the_same_difference_on_every_seed_has_no_p():
    said = judged({"fedpns": [0.5, 0.25], "fedavg": [0.25, 0.0]})
    assert said.endswith("over 2 seeds; every seed gives the same difference.") and "nan" not in said


def test_seeds_that_only_one_has_are_left_out():
    said = judged({"fedpns": [0.76, 0.77, np.nan], "fedavg": [0.71, 0.70, 0.1]})
    assert "over 2 seeds" in said


@pytest.mark.parametrize("strategies", [["fedpns", "fedavg"], ["bn2"], ["tests.parts:every_fifth", "fedpns"]])
def test_a_comparison_is_the_study_that_its_text_describes(tmp_path, strategies):
    settings = {key: value for key, value in SETTINGS.items() if key != "alpha" or "fedpns" in strategies}
    if "bn2" in strategies:
        settings["candidates"] = 8
    made = comparison(settings, strategies, [1, 2])
    (tmp_path / "study.yaml").write_bytes(made.text)
    read = read_study(tmp_path / "study.yaml")
    assert [trial.name for trial in read.trials] == [trial.name for trial in made.trials]
    assert read.title == made.title and read.baseline == made.baseline and read.targets == made.targets
    assert [trial.settings for trial in read.trials] == [trial.settings for trial in made.trials]
