"""Experiment: what it takes, what it fills in, what it refuses and how it says so."""

import pytest

from fedpns_ray import Experiment, InputError
from fedpns_ray.experiment import drop_idle


def test_defaults_are_those_of_section_v():
    e = Experiment(dataset="mnist")
    assert (e.model, e.nodes, e.per_round, e.samples_per_node, e.batch_size) == ("cnn-m", 50, 10, 200, 20)
    assert (e.epochs, e.rounds, e.lr, e.lr_decay, e.fraction) == (1, 200, 0.01, 0.995, 0.2)
    assert e.parameters == {
        "alpha": 2, "beta": 0.7, "v": 0.7, "expectation": "mean", "check_samples": 128, "check_draw": "random"
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
        ({"dataset": "mnist", "rho": 11}, "rho: 11 is not allowed; it must be less than or equal to 10"),
        ({"beta": 2}, "beta: 2 is not allowed; it must be less than or equal to 1"),
        ({"alpha": -1}, "alpha: -1 is not allowed; it must be greater than 0"),
        ({"alpha": "nan"}, "alpha: 'nan' is not allowed; it must be a finite number"),
        ({"fraction": 0.001}, "fraction: 0.001 draws 0 of 50 nodes; it must be above 0.01"),
        ({"strategy": "fedsgd"}, "strategy: 'fedsgd' is unknown; there are fedavg, fedavg-full, optimal-aggregation, fedpns, fedprox"),
        ({"selection": "pnz"}, "selection: 'pnz' is unknown; there are random, half, pns, largest-norm"),
        ({"dataset": "mnits"}, "dataset: 'mnits' is not allowed; it must be 'synthetic', 'mnist'"),
        ({"sigmaa": 1}, "sigmaa: unknown key (value 1); did you mean sigma?"),
        ({"strategy": "fedavg", "alpha": 2}, "alpha: 2 is not allowed; alpha is a parameter of pns"),
        ({"dataset": "mnist", "varrho": 1}, "varrho: 1.0 is not allowed; it means something for dataset synthetic only"),
        ({"dataset": "mnist", "partition": "iid", "rho": 2}, "rho: 2 is not allowed; it means something for partition"),
        ({"partition": "iid"}, "partition: 'iid' is not allowed; for dataset synthetic it must be natural"),
        ({"model": "vgg"}, "model: 'vgg' is unknown; there are mlr, cnn-m, cnn-c"),
        ({"rounds": "many"}, "rounds: 'many' is not allowed; it must be a valid integer"),
        ({"dataset": ["mnist"]}, "dataset: ['mnist'] is not allowed; it must be a name"),
        ({"selection": 5}, "selection: 5 is not allowed; it must be a name"),
        ({"parameters": 3}, "parameters: 3 is not allowed; it must be keys and values"),
        ({"strategy": ":x"}, "strategy: ':x' is not allowed; it must be like package.module:Name"),
        ({"strategy": "a\nb"}, "strategy: 'a\\nb' is unknown"),
        ({"nodes": 10**20}, "nodes: 100000000000000000000 is not allowed; it must be less than or equal to"),
        ({"rounds": 0}, "rounds: 0 is not allowed; it must be greater than 0"),
        ({"dataset": "mnist", "rho": 3, "samples_per_node": 2}, "rho: 3 is not allowed; a node has 2 samples"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(settings, message):
    with pytest.raises(InputError) as caught:
        Experiment(**settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


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
    assert fedavg.parts == {"selection": "random", "objective": "plain", "aggregation": "mean"}
    half = Experiment(strategy="fedavg", selection="half", sigma=0.5)
    assert half.but(seed=2).selection == "half" and half.but(strategy="optimal-aggregation").selection == "random"
    with pytest.raises(InputError, match="alpha is a parameter of pns"):
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
    [("a: [", "not a YAML file in line"), ("- 1", "must hold keys and values"), ("1: 2", "must hold keys and values")],
)
def test_yaml_mistakes_name_the_file(tmp_path, content, message):
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        Experiment.from_yaml(path)
    with pytest.raises(InputError, match="cannot be read"):
        Experiment.from_yaml(tmp_path / "none.yaml")
