"""Experiment: what it takes, what it fills in, what it refuses and how it says so."""

import pickle

import pytest
from pydantic import create_model, model_validator

from examples.own_dataset import Rings
from fedpns_ray import Experiment, InputError
from fedpns_ray.core.interfaces import Part
from fedpns_ray.registry import RESERVED, Parameter, known_parameters
from fedpns_ray.settings import drop_idle
from fedpns_ray.strategies.fedavg import RandomSelection


def test_defaults_are_those_of_section_v():
    e = Experiment(dataset="mnist")
    assert (e.model, e.nodes, e.per_round, e.samples_per_node, e.batch_size) == ("cnn-m", 50, 10, 200, 20)
    assert (e.epochs, e.rounds, e.lr, e.lr_decay, e.fraction) == (1, 200, 0.01, 0.995, 0.2)
    assert e.parameters == {
        "sigma": 0.2, "rho": 1,
        "alpha": 2, "beta": 0.7, "v": 0.7, "expectation": "mean", "check_samples": 128, "check_draw": "random",
        "momentum": 0, "nesterov": False, "weight_decay": 0, "clip_gradient": 0,
    }  # fmt: skip
    assert (Experiment(dataset="cifar10").model, Experiment(dataset="cifar10").epochs) == ("cnn-c", 5)
    s = Experiment()
    assert (s.dataset, s.model, s.epochs, s.samples_per_node) == ("synthetic", "mlr", 20, 1000)


def test_learning_rate_decays_to_its_floor():
    e = Experiment()
    assert e.lr_at(1) == 0.01 and e.lr_at(2) == pytest.approx(0.00995)
    assert e.lr_at(5000) == pytest.approx(0.0001)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": 1.5}, "sigma: 1.5 is not allowed; it must be less than or equal to 1"),
        ({"dataset": "mnist", "rho": 0}, "rho: 0 is not allowed; it must be greater than or equal to 1"),
        ({"dataset": "mnist", "rho": 11}, "rho: 11 is not allowed; it must be at most 10, the number of labels"),
        ({"beta": 2}, "beta: 2 is not allowed; it must be less than or equal to 1"),
        ({"alpha": -1}, "alpha: -1 is not allowed; it must be greater than 0"),
        ({"alpha": "nan"}, "alpha: 'nan' is not allowed; it must be a finite number"),
        ({"fraction": 0.001}, "fraction: 0.001 draws 0 of 50 nodes; it must be above 0.01"),
        (
            {"strategy": "fedsgd"},
            "strategy: 'fedsgd' is unknown; choose from fedavg, fedavg-full, optimal-aggregation, fedpns, fedprox",
        ),
        ({"selection": "pnz"}, "selection: 'pnz' is unknown; choose from random, half, pns, largest-norm"),
        ({"dataset": "mnits"}, "dataset: 'mnits' is unknown; choose from synthetic, mnist, fashion-mnist, cifar10"),
        ({"sigmaa": 1}, "sigmaa: unknown key (value 1); did you mean sigma?"),
        (
            {"strategy": "fedavg", "alpha": 2},
            "alpha: 2 is not allowed; it is only used with selection pns, and strategy fedavg has selection random",
        ),
        (
            {"dataset": "mnist", "varrho": 1},
            "varrho: 1 is not allowed; it is only used with dataset synthetic, and dataset is mnist",
        ),
        (
            {"dataset": "mnist", "partition": "iid", "rho": 2},
            "rho: 2 is not allowed; it is only used with partition sigma-rho, and partition is iid",
        ),
        ({"partition": "iid"}, "partition: 'iid' is not allowed; for dataset synthetic it must be natural"),
        ({"model": "vgg"}, "model: 'vgg' is unknown; choose from mlr, cnn-m, cnn-c"),
        ({"rounds": "many"}, "rounds: 'many' is not allowed; it must be a whole number"),
        ({"dataset": ["mnist"]}, "dataset: ['mnist'] is not allowed; it must be a name"),
        ({"selection": 5}, "selection: 5 is not allowed; it must be a name"),
        ({"parameters": 3}, "parameters: 3 is not allowed; it must be keys and values"),
        ({"strategy": ":x"}, "strategy: ':x' is not allowed; it must be like package.module:Name"),
        ({"strategy": "a\nb"}, "strategy: 'a\\nb' is unknown"),
        ({"nodes": 10**20}, "nodes: 100000000000000000000 is not allowed; it must be less than or equal to"),
        ({"lr": 1e308}, "lr: 1e+308 is not allowed; it must be less than or equal to 1000"),
        ({"samples_per_node": 999999999999}, "samples_per_node: 999999999999 is not allowed; it must be less than"),
        ({"devices": "log-normal", "device_speed": 1e-308}, "device_speed: 1e-308 is not allowed; it must be greater"),
        ({"slow_fraction": 1, "slow_seconds": 1e308}, "slow_seconds: 1e+308 is not allowed; it must be less than"),
        ({"rounds": 0}, "rounds: 0 is not allowed; it must be greater than 0"),
        ({"dataset": "mnist", "rho": 3, "samples_per_node": 2}, "rho: 3 is not allowed; a node has 2 samples"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(settings, message):
    with pytest.raises(InputError) as caught:
        Experiment(**settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


class Demanding(RandomSelection):
    """A parameter without a default, one that may be of two types, and a rule about both."""

    name = "demanding"
    least: int
    most: int | str = 9

    @model_validator(mode="after")
    def _ordered(self):
        if isinstance(self.most, int) and self.least > self.most:
            raise ValueError("least must not exceed most")
        return self


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "least: is missing; it has no default"),
        ({"least": "few"}, "least: 'few' is not allowed; it must be a whole number"),
        ({"least": 1, "most": []}, "most: [] is not allowed; it must be a whole number"),
        ({"least": 12}, "Demanding: {'least': 12} is not allowed; least must not exceed most"),
    ],
)
def test_user_defined_parameters_are_refused_alike(settings, message):
    with pytest.raises(InputError) as caught:
        Experiment(strategy="fedavg", selection=Demanding, **settings)
    assert str(caught.value) == message


def test_an_error_is_data():
    with pytest.raises(InputError) as caught:
        Experiment(sigma=1.5)
    assert (caught.value.field, caught.value.value) == ("sigma", 1.5)
    assert caught.value.allowed == "it must be less than or equal to 1"
    with pytest.raises(InputError) as caught:
        Experiment(sgima=1)
    assert (caught.value.field, caught.value.hint) == ("sgima", "did you mean sigma?")
    with pytest.raises(InputError, match="nodes: such a number is not allowed"):
        Experiment(nodes=10**5000)


def test_yaml_round_trip_holds_what_matters_and_no_more(tmp_path):
    for e in (
        Experiment(strategy="fedpns", alpha=3, dataset="mnist", rho=2),
        Experiment(strategy="bn2", candidates=15),
        Experiment(strategy="fedavg", selection="half", dataset="cifar10"),
        Experiment(dataset="cifar10", partition="dirichlet", concentration=0.1),
    ):
        path = tmp_path / "config.yaml"
        path.write_text(e.to_yaml())
        assert Experiment.from_yaml(path) == e
    settings = Experiment(strategy="fedavg").settings()
    assert "alpha" not in settings and "rho" not in settings and settings["varrho"] == 1


def test_label_names_changed_parts():
    assert Experiment(strategy="fedavg").label == "fedavg"
    assert Experiment(strategy="fedavg", selection="half").label == "fedavg+half"
    assert Experiment(strategy="fedpns", aggregation="mean").label == "fedpns+mean"


def test_another_strategy_brings_its_own_parts_and_leaves_foreign_parameters():
    fedavg = Experiment(strategy="fedpns", alpha=3, sigma=0.4).but(strategy="fedavg")
    assert fedavg == Experiment(strategy="fedavg", sigma=0.4)
    assert fedavg.parts == {"selection": "random", "objective": "plain", "aggregation": "mean", "server": "none"}
    half = Experiment(strategy="fedavg", selection="half", sigma=0.5)
    assert half.but(seed=2).selection == "half" and half.but(strategy="optimal-aggregation").selection == "random"
    with pytest.raises(InputError, match="it is only used with selection pns"):
        Experiment().but(strategy="fedavg", alpha=1)


def test_yaml_reads_on_and_off():
    assert Experiment(vectorize=True).vectorize == "on" and Experiment(vectorize=False).vectorize == "off"


def test_drop_idle_keeps_what_a_strategy_uses():
    grid = {"alpha": 3, "rho": 2, "sigma": 0.3, "dataset": "mnist"}
    assert drop_idle({**grid, "strategy": "fedavg"}) == {
        "strategy": "fedavg",
        "rho": 2,
        "sigma": 0.3,
        "dataset": "mnist",
    }
    assert drop_idle({**grid, "strategy": "fedpns"}) == {**grid, "strategy": "fedpns"}
    assert drop_idle({"rho": 2, "typo": 1}) == {"typo": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "not a YAML file in line"),
        ("- 1", "must hold keys and values"),
        ("1: 2", "line 1: keys must be strings; 1 is not one"),
    ],
)
def test_yaml_mistakes_name_the_file(tmp_path, content, message):
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        Experiment.from_yaml(path)
    with pytest.raises(InputError, match="cannot be read"):
        Experiment.from_yaml(tmp_path / "none.yaml")


def test_a_parameter_whose_name_is_taken_is_written_with_its_kind():
    assert set(Experiment.model_fields) == RESERVED
    e = Experiment(strategy="tests.parts:Twins", dataset="tests.parts:Named", **{"dataset.lr": 3, "selection.lr": 4})
    assert (e.parameters["selection.lr"], e.parameters["dataset.lr"], e.lr) == (4, 3, 0.01)
    assert e.parameters["depth"] == 1 and e.parameters["dataset.depth"] == 2
    assert (e.build_strategy().selection.lr, e.build_dataset().lr, e.build_dataset().depth) == (4, 3, 2)
    assert Experiment(**e.settings()) == e
    with pytest.raises(InputError, match=r"^dataset.lr: 'x' is not allowed; it must be a whole number"):
        e.but(**{"dataset.lr": "x"})


def test_parts_of_different_kinds_share_no_bare_name():
    for takers in known_parameters().values():
        kinds = {it.kind for it in takers}
        assert len(kinds) == 1 or kinds == {"dataset", "partition"}  # sigma: never of both at once


def test_every_parameter_is_described_by_the_text_below_it():
    """Also one that a part inherits; a part without source has none."""
    described = {key: [it.description for it in takers] for key, takers in known_parameters().items()}
    assert all(text for texts in described.values() for text in texts), described
    made = create_model("Made", __base__=Part, x=(int, 1))
    assert Parameter("selection", made, "x").description == ""


def test_samples_are_known_by_the_data_set_alone():
    """A study over rho and partitions loads its data once."""
    one = Experiment(dataset="mnist", rho=1)
    assert one.data_name == one.but(rho=2).data_name == one.but(partition="iid", nodes=7).data_name
    assert one.data_name != one.but(dataset="cifar10").data_name
    assert Experiment(dataset="shakespeare").data_name != Experiment(dataset="shakespeare", context=40).data_name


def test_data_parts_are_made_once_and_stay_where_they_are(monkeypatch):
    """A data set may be costly to make; other processes are told its name."""
    made, init = [], Rings.__init__
    monkeypatch.setattr(Rings, "__init__", lambda self, **fields: made.append(self) or init(self, **fields))
    e = Experiment(dataset="examples.own_dataset:Rings", noise=0.2)
    assert e.build_dataset() is e.build_dataset() is made[0] and e.data_name and len(made) == 1
    content = pickle.dumps(e)
    assert b"own_dataset" in content and b"_made" not in content
    assert pickle.loads(content) == e and pickle.loads(content).build_dataset() == made[0]


def test_what_is_implied_counts_when_a_run_is_looked_for():
    """A study that names the mean does not take a run with Optimal Aggregation for its own."""
    own = {"dataset": "examples.own_dataset:Rings", "strategy": "fedavg"}
    asked = {**own, "aggregation": "mean", "momentum": 0.0}
    mine = Experiment.recorded(asked)
    assert mine.agrees_with(Experiment(**own), asked)
    for other in ({"aggregation": "optimal"}, {"momentum": 0.9}):
        assert not mine.agrees_with(Experiment(**own, **other), asked)
    named = {"strategy": "examples.newcomers:Newcomers", "aggregation": "optimal"}  # its own, which nobody knows unread
    assert Experiment.recorded(named).agrees_with(Experiment(**named), named)
