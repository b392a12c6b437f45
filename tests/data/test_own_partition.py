"""The example of a partition: what it does, and what is refused."""

from pathlib import Path

import pytest

from fedpns_ray import Experiment, InputError
from fedpns_ray.data import build_population
from fedpns_ray.data.interfaces import Partition
from fedpns_ray.errors import UserCodeError

ROOT = Path(__file__).parents[2]
PATH = "examples.own_partition:Favourites"
SIZE = {"dataset": "mnist", "model": "mlr", "nodes": 10, "samples_per_node": 30, "rounds": 2, "strategy": "fedavg"}


class Careless(Partition):
    """Forgets a node."""

    name = "careless"

    def spread(self, rng, samples, sizes):
        return [[1, 2], []] + [[0]] * (len(sizes) - 2)


def test_it_is_short_and_does_what_it_says(mnist):
    assert len((ROOT / "examples/own_partition.py").read_text().splitlines()) <= 40
    p = build_population(Experiment(**SIZE, partition=PATH, favour=0.8))
    assert (p.histogram.diagonal() >= 24).all() and (p.sizes == 30).all()


def test_what_it_returns_is_checked(mnist, monkeypatch):
    with pytest.raises(
        InputError, match="partition: .* leaves node 1 without a sample; every node must hold at least one"
    ):
        build_population(Experiment(**SIZE, partition=Careless))
    for made, said in (
        (None, "returned an object of type NoneType; it must be one array per node"),
        ([[0]], "returned 1 nodes; there must be"),
        ([[0.5]] * SIZE["nodes"], "gives node 0 an array of float64 of shape .*; it must hold the positions"),
    ):
        with monkeypatch.context() as patched, pytest.raises(InputError, match=f"partition: tests.*:Careless {said}"):
            patched.setattr(Careless, "spread", lambda *_, made=made: made)
            build_population(Experiment(**SIZE, partition=Careless))
    with monkeypatch.context() as patched, pytest.raises(UserCodeError, match="test_own_partition.py, line .*KeyError"):
        patched.setattr(Careless, "spread", lambda *_: {}[0])
        build_population(Experiment(**SIZE, partition=Careless))
    with pytest.raises(InputError, match="favour: 3"):
        Experiment(**SIZE, partition=PATH, favour=3)
