"""`clip_updates`: a node that returns a huge update cannot ruin a run; off, nothing is different."""

import numpy as np
import pytest
import yaml

from fedpns_ray import Experiment, InputError, Layout, run
from fedpns_ray.core.clipping import clip
from fedpns_ray.core.interfaces import Updates
from fedpns_ray.registry import PRESETS
from fedpns_ray.terminal.command_line import main
from tests.strategies.test_all import experiment
from tests.test_run import untimed

RUINED = 1e20
"""No weight of a model that has learned anything comes near it."""
UNHARMED = {"cmfl", "fedadam", "fedyogi", "fedadagrad"}
"""CMFL leaves an update out that points elsewhere than the last ones; the others divide a step by its own size."""


def updates(*norms):
    deltas = np.zeros((len(norms), 4), dtype=np.float32)
    deltas[:, 1] = norms
    ids = tuple(range(10, 10 + len(norms)))
    return Updates(ids, deltas, np.ones(len(norms)), np.ones(len(norms), int), np.ones(len(norms), int), 0.1)


@pytest.mark.parametrize(
    ("norms", "times", "clipped", "after"),
    [
        ((1, 2, 3, 4, 100), 2, [14], (1, 2, 3, 4, 6)),
        ((1, 2, 3, 4, 6), 2, [], (1, 2, 3, 4, 6)),
        ((1, 1e30), 3, [11], (1, 3)),  # the lower median: the huge one does not raise its own limit
        ((1e30, 2, 1e38, 2), 1, [10, 12], (2, 2, 2, 2)),
        ((5,), 1, [], (5,)),
        ((4, 8), 0.5, [10, 11], (2, 2)),
        ((0, 0, 7), 2, [12], (0, 0, 0)),
        ((), 2, [], ()),
    ],
)
def test_large_updates_are_scaled_to_the_limit(norms, times, clipped, after):
    given = updates(*norms)
    before = given.deltas.copy()
    found, nodes = clip(given, times)
    assert nodes == clipped and found.norms().tolist() == pytest.approx(list(after))
    assert (given.deltas == before).all() and found.deltas.dtype == np.float32  # what was given is not changed
    if not clipped:
        assert found is given


@pytest.mark.parametrize("strategy", PRESETS)
def test_a_node_that_shouts_ruins_a_run_only_without_it(strategy):
    settings = {"objective": "tests.parts:Shout", "rounds": 6, "lr": 0.05, "samples_per_node": 60}
    ruined, kept = (run(experiment(strategy, **settings, clip_updates=times), progress=False) for times in (0, 2))
    assert strategy in UNHARMED or np.abs(ruined.weights).max() > RUINED
    assert np.abs(kept.weights).max() < 5 and np.isfinite(kept.summary["last_loss"])
    assert not any("clipped" in record for record in ruined.records)
    for record in kept.records:
        assert record["drawn"][0] in record["clipped"] and set(record["clipped"]) <= set(record["drawn"])


def test_same_bits_on_two_actors():
    e = experiment("fedpns", objective="tests.parts:Loud", rounds=8, lr=0.05, samples_per_node=100, clip_updates=2)
    here, there = run(e, progress=False), run(e, layout=Layout(actors=2), progress=False)
    assert here.summary["weights_sha256"] == there.summary["weights_sha256"]
    assert untimed(here.records) == untimed(there.records)
    assert sum(len(record["clipped"]) for record in here.records) > 0


def test_it_is_a_setting_like_any_other_and_silent_when_off(tmp_path, monkeypatch, capsys):
    plain = Experiment(rounds=3)
    assert (
        "clip_updates" not in plain.settings() and plain.settings() == Experiment(rounds=3, clip_updates=0).settings()
    )
    assert plain.but(clip_updates=3).settings()["clip_updates"] == 3
    with pytest.raises(InputError, match="clip_updates: -1"):
        Experiment(clip_updates=-1)
    monkeypatch.chdir(tmp_path)
    small = ["--nodes", "10", "--rounds", "2", "--samples-per-node", "30", "--in-process", "--out", "r"]
    assert main(["run", *small, "--clip-updates", "1.5"]) == 0
    assert yaml.safe_load((tmp_path / "r/config.yaml").read_text())["clip_updates"] == 1.5
    assert main(["run", *small]) == 2
    assert "clip_updates is 1.5 there, None here" in capsys.readouterr().err
