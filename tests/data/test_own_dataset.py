"""A user's own data set, by import path: from the command line, in a study and from Python, in process and on Ray."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedpns_ray import Experiment, InputError
from fedpns_ray.data import Dataset, Samples, build_population
from fedpns_ray.data.checking import checked_samples

ROOT = Path(__file__).parents[2]
RINGS = "examples.own_dataset:Rings"
SMALL = {"dataset": RINGS, "noise": 0.05, "strategy": "fedavg", "nodes": 10, "rounds": 3, "epochs": 20, "lr": 0.1}


class Wrong(Dataset):
    """A data set that goes wrong in one of several ways."""

    name = "wrong"
    how: str = "label"

    def load(self):
        x, y = np.zeros((90, 2)), np.arange(90) % 3
        if self.how == "raises":
            raise OSError("the disk is on fire")
        if self.how == "nan":
            x[3, 1] = np.nan
        if self.how == "type":
            return x, y
        if self.how.startswith("classes "):
            return Samples(x, y, x, y, classes=yaml.safe_load(self.how.removeprefix("classes ")))
        if self.how.startswith("deviation "):
            return Samples(x, y, x, y, deviation=float(self.how.removeprefix("deviation ")), classes=3)
        return Samples(x, y, x, y, classes=2 if self.how == "label" else 3)


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("label", r"cannot be used: train_y holds the label 2 at \[2\]; labels are whole numbers from 0 to 1"),
        ("nan", r"cannot be used: train_x holds 1 value that is not finite as float32, the first at \[3, 1\]"),
        ("type", "cannot be used: load.. returned an object of type tuple; it must return fedpns_ray.data.Samples"),
        ("raises", r"OSError: the disk is on fire"),
        ("classes 0", "cannot be used: classes is 0; it must be a whole number from 1 to 100,000"),
        ("classes 2.5", "cannot be used: classes is 2.5; it must be a whole number"),
        ("classes null", "cannot be used: classes is None; it must be a whole number"),
        ("classes 1000000000", "cannot be used: classes is 1000000000; it must be"),  # not out of memory
        ("deviation 0", "cannot be used: deviation is 0.0; it must be a finite number above 0"),
        ("deviation nan", "cannot be used: deviation is nan; it must be a finite number above 0"),
    ],
)
def test_what_load_returns_is_checked(how, problem):
    with pytest.raises(InputError, match=problem) as refused:
        build_population(Experiment(dataset=Wrong, how=how))
    assert "test_own_dataset" in str(refused.value) and "\n" not in str(refused.value)


@dataclass(frozen=True)
class Task(Samples):
    task: str = "regression"


def test_targets_are_those_of_the_task():
    x, y = np.zeros((4, 2)), np.array([[0.5], [1], [-2], [3]])
    found = checked_samples(Task(x, y, x, y, classes=1), "dataset", "own")
    assert found.train_y.dtype == np.float32 and np.array_equal(found.train_y, y)
    with pytest.raises(InputError, match=r"train_y has the shape \(4, 1\)"):
        checked_samples(Task(x, y, x, y, classes=1, task="classification"), "dataset", "own")
    tokens = np.array([[0, 1], [1, 2]])
    found = checked_samples(Task(tokens, tokens, tokens, tokens, classes=3, task="next-token"), "dataset", "own")
    assert np.array_equal(found.test_y, tokens)
    with pytest.raises(InputError, match=r"train_y holds the label 2 at \[1, 1\]"):
        checked_samples(Task(tokens, tokens, tokens, tokens, classes=2, task="next-token"), "dataset", "own")


def test_natural_needs_owners():
    with pytest.raises(InputError, match="for dataset tests.data.test_own_dataset:Wrong it must be sigma-rho, diri"):
        Experiment(dataset=Wrong, partition="natural")
    with pytest.raises(InputError, match="dataset: json:loads is not a subclass of fedpns_ray.data.Dataset"):
        Experiment(dataset="json:loads")
    with pytest.raises(InputError, match="noise: 2 is not allowed; it must be less than or equal to 1"):
        Experiment(dataset=RINGS, noise=2)
