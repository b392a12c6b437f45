"""Random, half-and-half and BN2; and the registry that names them."""

import numpy as np
import pytest

from fedpns_ray import InputError
from fedpns_ray.core.interfaces import Nodes, Updates
from fedpns_ray.core.streams import stream
from fedpns_ray.registry import PRESETS, assemble, find_part, find_preset
from fedpns_ray.strategies.bn2 import LargestNormSelection
from fedpns_ray.strategies.fedavg import HalfSelection, MeanAggregation, RandomSelection


def nodes(count=50, iid=25, per_round=10):
    return Nodes(np.full(count, 200), np.arange(count) < iid, per_round)


def updates(deltas, first=0):
    deltas = np.array(deltas, dtype=np.float32)
    m = len(deltas)
    return Updates(tuple(range(first, first + m)), deltas, np.zeros(m), np.full(m, 1), np.full(m, 1), 0.01)


def test_half_draws_five_and_five():
    selection = HalfSelection()
    selection.begin(nodes())
    for t in range(50):
        drawn = selection.draw(stream(1, "draw", t), None)
        assert len(set(drawn)) == 10 and sum(node < 25 for node in drawn) == 5


def test_half_refuses_a_population_without_both_kinds():
    with pytest.raises(InputError, match="half draws 5 i.i.d. and 5 other nodes per round; there are 3 and 47"):
        HalfSelection().begin(nodes(iid=3))


def test_same_seed_same_draws_for_two_strategies():
    """Figure 1: FedAvg and Optimal Aggregation see the same nodes, because the stream's name is the same."""
    one, two = RandomSelection(), RandomSelection()
    for selection in (one, two):
        selection.begin(nodes())
    for t in range(1, 20):
        assert one.draw(stream(3, "draw", t), None) == two.draw(stream(3, "draw", t), None)
        assert one.draw(stream(3, "draw", t), None) != one.draw(stream(4, "draw", t), None)


def test_bn2_sends_the_largest_and_breaks_ties_by_id():
    selection = LargestNormSelection(candidates=5)
    selection.begin(nodes(count=10, per_round=3))
    assert len(set(selection.draw(stream(1, "draw", 1), None))) == 5
    sent = selection.sift(stream(1, "sift", 1), updates([[1, 0], [0, 3], [1, 0], [2, 0], [-1, 0]]))
    assert sent.node_ids == (0, 1, 3)
    assert sent.deltas.tolist() == [[1, 0], [0, 3], [2, 0]]


def test_bn2_refuses_too_few_candidates():
    with pytest.raises(InputError, match="candidates: 5 is not allowed; it must be between 10"):
        LargestNormSelection(candidates=5).begin(nodes())


def test_mean_is_the_float64_mean():
    outcome = MeanAggregation().combine(np.ones(2, dtype=np.float32), updates([[1, 2], [3, 4]], first=7), None)
    assert outcome.weights.tolist() == [3, 4] and outcome.aggregated == (7, 8) and outcome.weights.dtype == np.float32


def test_presets_are_their_parts():
    three = {name: (p.selection, p.objective, p.aggregation) for name, p in PRESETS.items() if p.server == "none"}
    assert three == {
        "fedavg": ("random", "plain", "mean"),
        "fedavg-full": ("random", "plain", "all-nodes"),
        "optimal-aggregation": ("random", "plain", "optimal"),
        "fedpns": ("pns", "plain", "optimal"),
        "fedprox": ("random", "proximal", "mean"),
        "fedadp": ("random", "plain", "adaptive"),
        "cmfl": ("relevant", "plain", "mean"),
        "power-of-choice": ("power-of-choice", "plain", "mean"),
        "norm-sampling": ("norm-sampling", "plain", "mean"),
        "optimal-sampling": ("optimal-sampling", "plain", "mean"),
        "importance-latency": ("importance-latency", "plain", "mean"),
        "fedcs": ("deadline", "plain", "mean"),
        "bn2": ("largest-norm", "plain", "mean"),
        "bc": ("best-channel", "plain", "mean"),
        "bc-bn2": ("best-channel-largest-norm", "plain", "mean"),
        "oort": ("oort", "plain", "mean"),
    }
    others = {"fedavgm": "momentum", "fedadam": "adam", "fedyogi": "yogi", "fedadagrad": "adagrad"}
    assert {name: p.parts for name, p in PRESETS.items() if name not in three} == {
        name: {"selection": "random", "objective": "plain", "aggregation": "mean", "server": server}
        for name, server in others.items()
    }
    parts = {"selection": "pns", "objective": "plain", "aggregation": "mean", "server": "none"}
    strategy = assemble(parts, {"alpha": 3})
    assert strategy.selection.alpha == 3 and isinstance(strategy.aggregation, MeanAggregation)


def test_a_part_of_your_own_by_import_path():
    path = f"{__name__}:Lowest"
    assert find_part("selection", path) is Lowest
    with pytest.raises(InputError, match="is not a subclass"):
        find_part("aggregation", path)
    with pytest.raises(InputError, match="cannot be imported"):
        find_part("selection", "no.such.module:Thing")
    with pytest.raises(InputError, match="strategy: 'fedsgd' is unknown; choose from fedavg"):
        find_preset("fedsgd")


class Lowest(RandomSelection):
    """Always the first nodes."""

    name = "lowest"

    def draw(self, rng, probe):
        return range(self._nodes.per_round)
