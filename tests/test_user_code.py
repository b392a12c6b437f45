"""A mistake in the user's own part: their file and line in one line, wherever the part ran."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.core.availability import Availability
from fedpns_ray.core.compression import Compression
from fedpns_ray.core.metrics import Metric
from fedpns_ray.core.optimizers import Optimizer
from fedpns_ray.core.quantity import Quantity
from fedpns_ray.data import Dataset, Partition
from fedpns_ray.errors import UserCodeError
from fedpns_ray.registry import PARTS
from fedpns_ray.strategies import Aggregation, Selection
from fedpns_ray.terminal.command_line import main
from tests import parts

SMALL = {"nodes": 10, "samples_per_node": 40, "epochs": 1, "rounds": 5}


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("missing", "the draw returned node 99, which does not exist; it must return distinct nodes between 0 and 9"),
        ("twice", "the draw returned node 3, twice; it must"),
        ("nothing", "the draw returned None; it must return node ids"),
        ("names", "the draw returned ['a']; it must return node ids"),
    ],
)
def test_an_impossible_draw(kind, problem):
    with pytest.raises(UserCodeError) as caught:
        run(Experiment(strategy="tests.parts:Impossible", kind=kind, **SMALL))
    assert f"{parts.__file__}, line " in str(caught.value) and f"in draw: {problem}" in str(caught.value)


def test_a_model_of_the_wrong_shape():
    with pytest.raises(UserCodeError, match=r"parts.py, line \d+, in combine: the model has the shape \(609,\)"):
        run(Experiment(strategy="fedavg", aggregation="tests.parts:TooShort", **SMALL))


BASES = {
    "selection": (Selection, "draw"),
    "aggregation": (Aggregation, "combine"),
    "dataset": (Dataset, "load"),
    "partition": (Partition, "spread"),
    "optimizer": (Optimizer, "start"),
    "compression": (Compression, "encode"),
    "availability": (Availability, "timetable"),
    "metrics": (Metric, "measure"),
}


@pytest.mark.parametrize("kind", BASES)
def test_a_part_that_lacks_its_method_is_refused_by_name(kind, monkeypatch):
    base, method = BASES[kind]
    part = type(base)("Bare", (base,), {"__module__": __name__, "name": "bare"})
    monkeypatch.setattr(sys.modules[__name__], "Bare", part, raising=False)
    with pytest.raises(InputError, match=rf"^{kind}: tests.test_user_code:Bare has no method {method}$"):
        Experiment(**SMALL, **{kind: f"{__name__}:Bare"}).build_metrics()


class Stepless(Optimizer):
    name = "stepless"
    step: str = "none"

    def start(self, weights, lr):
        return None if self.step == "none" else lambda: weights


class Silent(Aggregation):
    name = "silent"

    def combine(self, weights, updates, check_loss):
        return None


class Wordy(Metric):
    name = "wordy"
    quantities = (Quantity("mood", "mood"),)

    def measure(self, confusion):
        return {"mood": "good"}


class Timeless(Availability):
    name = "timeless"
    answer: int = 0

    def timetable(self, nodes, seed, labels):
        return SimpleNamespace(next_rounds=lambda round: np.full(nodes.count - 3 * self.answer, self.answer))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"optimizer": Stepless}, r"in start: it must return a function of a gradient \(None is not a callable"),
        ({"optimizer": Stepless, "step": "of nothing"}, "in start: it must return a function of a gradient"),
        ({"aggregation": Silent}, "in combine: it returned None; it must return an Outcome"),
        ({"metrics": f"{__name__}:Wordy"}, "in measure: the metric returned 'good' for mood; it must be a number"),
        ({"availability": Timeless}, r"in timetable: its next_rounds\(1\) returned .*; it must .* of 10 nodes"),
        ({"availability": Timeless, "answer": 1}, r"next_rounds\(1\) returned array\(\[1, 1, 1, 1, 1, 1, 1\]\); it"),
    ],
)
def test_what_a_method_returns_is_looked_at(settings, problem):
    with pytest.raises(UserCodeError, match=problem) as caught:
        run(Experiment(**SMALL, **settings))
    assert str(caught.value).startswith(f"{__file__}, line ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("base", [Optimizer, Dataset, Metric, Selection])
def test_a_part_with_a_constructor_is_refused_with_what_to_do(base):
    with pytest.raises(TypeError, match="a part needs no __init__: its fields are its parameters"):
        type(base)("Made", (base,), {"__module__": __name__, "name": "made", "__init__": lambda self, path: None})
    with pytest.raises(TypeError, match="the quantities of Made must be of the type"):
        type(base)("Made", (base,), {"__module__": __name__, "name": "made", "quantities": ("mood",)})


def test_what_needs_no_method_of_its_own_has_them_all():
    for part in (part for one in PARTS.values() for part in one.values()):
        assert part.missing() == ""


def test_an_exception_names_the_line_and_loses_nothing(tmp_path):
    with pytest.raises(
        UserCodeError, match=r"parts.py, line \d+, in draw: ValueError: a mistake over two lines"
    ) as caught:
        run(Experiment(strategy="tests.parts:Clumsy", **SMALL), tmp_path / "r", checkpoint_every=1)
    assert isinstance(caught.value.__cause__, ValueError)
    assert len((tmp_path / "r" / "rounds.jsonl").read_text().splitlines()) == 1  # the second was being tested


def test_an_iterator_that_is_empty_is_blamed_as_well():
    """A run is a generator: Python turns a StopIteration in it into an error of its own."""
    with pytest.raises(UserCodeError, match=r"parts.py, line \d+, in draw: StopIteration"):
        run(Experiment(strategy="tests.parts:Exhausted", **SMALL))


MISTAKES = """
from torch import nn
from fedpns_ray.strategies import Selection

class Wrong(Selection):
    name = "wrong"
    def draw(self, rng, probe):
        return [0, 1 // 0]

class Net(nn.Linear):
    def __init__(self, shape, classes):
        super().__init__(shape[0], classes)
    def forward(self, x):
        if self.training and len(x) == 20:
            raise RuntimeError("no")
        return super().forward(x)
"""


@pytest.mark.parametrize(
    ("flags", "place"),
    [
        (["--strategy", "mistakes:Wrong"], "mistakes.py, line 8, in draw: ZeroDivisionError: "),
        (["--model", "mistakes:Net"], "mistakes.py, line 15, in forward: RuntimeError: no"),
    ],
)
@pytest.mark.parametrize("where", [["--in-process"], ["--actors", "2"]], ids=["in process", "on Ray"])
def test_the_command_shows_one_line(tmp_path, monkeypatch, capsys, flags, place, where):
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "PYTHONPATH", str(tmp_path)
    )  # for the workers: Ray's own test fixtures start none in this folder
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("mistakes", None)
    small = ["--nodes", "10", "--samples-per-node", "40", "--epochs", "1", "--rounds", "5", "--out", "r"]
    assert main(["run", *small, *flags, *where]) == 2
    printed = capsys.readouterr()
    said = [line for line in printed.err.splitlines() if not re.match("starting |Ray: ", line)]
    assert len(said) == 1 and place in said[0] and said[0].startswith(f"fedpns: {tmp_path}"), printed
