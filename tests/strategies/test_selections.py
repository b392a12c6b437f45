"""The registry that names strategies and their parts."""

import pytest

from fedpns_ray import InputError
from fedpns_ray.registry import PRESETS, assemble, find_part, find_preset
from fedpns_ray.strategies.fedavg import MeanAggregation, RandomSelection


def test_presets_are_their_parts():
    three = {name: (p.selection, p.objective, p.aggregation) for name, p in PRESETS.items() if p.server == "none"}
    assert three == {
        "fedavg": ("random", "plain", "mean"),
        "fedavg-full": ("random", "plain", "all-nodes"),
        "optimal-aggregation": ("random", "plain", "optimal"),
        "fedpns": ("pns", "plain", "optimal"),
        "fedprox": ("random", "proximal", "mean"),
        "fedadp": ("random", "plain", "adaptive"),
        "scaffold": ("random", "control-variates", "mean"),
        "cmfl": ("relevant", "plain", "mean"),
        "power-of-choice": ("power-of-choice", "plain", "mean"),
        "norm-sampling": ("norm-sampling", "plain", "mean"),
        "optimal-sampling": ("optimal-sampling", "plain", "mean"),
        **{
            name: (name, "plain", "mean")
            for name in (
                "divfl",
                "fedcor",
                "afl",
                "clustered-size",
                "clustered-similarity",
                "hics",
                "tifl",
                "gpfl",
                "shapley",
            )
        },
        "predicted-updates": ("anchored-norm-sampling", "plain", "predicted"),
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
