"""What holds for every registered strategy: it composes, repeats to the bit, and resumes from a checkpoint."""

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedpns_ray import DivergedError, Experiment, InputError, Interrupted, run
from fedpns_ray.registry import PARTS, PRESETS, find_preset, parameters_of
from fedpns_ray.strategies import Preset
from fedpns_ray.strategies.oort import OortSelection
from fedpns_ray.terminal.command_line import main
from tests.test_run import untimed

ROOT = Path(__file__).parent.parent.parent
SMALL = {"nodes": 12, "fraction": 0.34, "samples_per_node": 30, "epochs": 2, "rounds": 24, "devices": "log-normal"}
FEW = {"candidates": 8, "choices": 8, "relevance": 0.55, "relevance_decay": "none", "stragglers": 0.5, "pace_window": 4,
       "warmup": 5, "fit_every": 4, "first_fit_steps": 50, "fit_steps": 20, "clusters": 4, "temperature": 0.01,
       "tiers": 3, "credits": 5, "tier_interval": 3, "appraisal_samples": 16}  # fmt: skip


def experiment(strategy="fedavg", **changes):
    """Small, with the device model on; parameters that the parts take are made to matter."""
    plain = Experiment(strategy=strategy, **{k: v for k, v in changes.items() if k in PARTS})
    few = {key: value for key, value in FEW.items() if key in plain.parameters}
    return Experiment(strategy=strategy, **{**SMALL, **few, **changes})


@pytest.mark.parametrize("strategy", PRESETS)
def test_stopped_and_resumed_to_the_same_bits(tmp_path, strategy):
    """The state crosses the checkpoint: with one left out, the second half would draw or weigh otherwise."""
    e = experiment(strategy)
    whole, seen = run(e), []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 13)
    resumed = run(e, tmp_path / "r")
    assert resumed.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert untimed(resumed.records) == untimed(whole.records)
    assert all(record["bytes_up"] >= 0 and record["simulated_seconds"] >= 0 for record in whole.records)


@pytest.mark.parametrize(
    "strategy",
    [
        "fedadp",
        "cmfl",
        "power-of-choice",
        "oort",
        "fedpns",
        "fedavgm",
        "fedadam",
        "scaffold",
        "divfl",
        "fedcor",
        "tifl",
        "clustered-similarity",
        "gpfl",
        "shapley",
        "predicted-updates",
    ],
)
def test_the_state_matters(tmp_path, strategy):
    """Else the test above could not fail: a run whose second half begins with a fresh state ends elsewhere."""
    more = {"variant": "rpow-d"} if strategy == "power-of-choice" else {}
    e = experiment(strategy, **more)
    seen = []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 13)
    checkpoint = tmp_path / "r" / "checkpoint.npz"
    with np.load(checkpoint) as state:
        kept = {key: state[key] for key in state.files}
    fresh = e.build_strategy()
    from fedpns_ray.core.run import known_nodes
    from fedpns_ray.data import build_population

    population = build_population(e)
    tensors = ((len(kept["weights"]),),)
    fresh.begin(known_nodes(e, population.sizes, population.iid, tensors))  # no last layer: not for hics
    assert set(fresh.state_dict()) == {key for key in kept if "." in key} != set()
    np.savez(checkpoint, **{**kept, **fresh.state_dict()})
    assert run(e, tmp_path / "r").summary["weights_sha256"] != run(e).summary["weights_sha256"]


@pytest.mark.parametrize("strategy", PRESETS)
def test_state_dict_round_trip(tmp_path, strategy):
    """What one strategy gives, another takes and gives back, as arrays that need no pickle."""
    e = experiment(strategy, rounds=6)
    run(e, tmp_path / "r", checkpoint_every=6)
    with np.load(tmp_path / "r" / "checkpoint.npz", allow_pickle=False) as state:
        stored = {key: state[key] for key in state.files if "." in key}
    one = e.build_strategy()
    one.load_state_dict(stored)
    assert set(one.state_dict()) == set(stored)
    assert all(np.array_equal(value, stored[key]) for key, value in one.state_dict().items())


def triples():
    """Every two parts of different kinds together in one triple: each objective takes its turn."""
    pairs = itertools.product(enumerate(PARTS["selection"]), enumerate(PARTS["aggregation"]))
    objectives = list(PARTS["objective"])
    return [
        (selection, objectives[(i + j) % len(objectives)], aggregation) for (i, selection), (j, aggregation) in pairs
    ]


@pytest.mark.parametrize("selection, objective, aggregation", triples())
def test_any_three_parts_compose(selection, objective, aggregation):
    parts = {"selection": selection, "objective": objective, "aggregation": aggregation}
    assert not any("." in key for key in parameters_of(parts))  # no two parts share the name of a parameter
    on_air = PARTS["aggregation"][aggregation].over_the_air
    e = experiment(**parts, sigma=0.5, rounds=3, **({"devices": "off"} if on_air else {}))
    try:
        result = run(e)
    except InputError as error:  # without messages there is nothing for a device model to time
        assert on_air and "needs a device model" in str(error)
        return
    assert np.isfinite(result.weights).all()
    for record in result.records:
        assert set(record["aggregated"]) <= set(record["drawn"])


def test_presets_and_their_parts_are_the_same_run():
    assert (
        run(experiment("fedpns", rounds=5)).summary["weights_sha256"]
        == (run(experiment("fedavg", selection="pns", aggregation="optimal", rounds=5)).summary["weights_sha256"])
    )


@pytest.mark.parametrize("strategy", PRESETS)
def test_one_node(strategy):
    """A population of one: it is drawn, trains, and (but for CMFL, which may withhold) is aggregated."""
    one = {"nodes": 1, "fraction": 1.0, "sigma": 1.0, "rounds": 3}
    one |= {key: 1 for key in ("candidates", "choices") if key in experiment(strategy).parameters}
    one |= {"deadline": 100} if strategy == "fedcs" else {}
    for record in run(experiment(strategy, **one)).records:
        assert record["drawn"] == [0] and (strategy == "cmfl" or record["aggregated"] == [0])


@pytest.mark.parametrize("strategy", PRESETS)
def test_nodes_that_drop_out(strategy):
    """Some, and all of them."""
    for probability in (0.5, 1.0):
        result = run(experiment(strategy, drop_probability=probability, rounds=6))
        assert all(set(record["aggregated"]) <= set(record["returned"]) for record in result.records)
    assert all(record["aggregated"] == [] and record["bytes_up"] % 8 == 0 for record in result.records)


@pytest.mark.parametrize("strategy", PRESETS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_that_diverges_says_so(strategy):
    with pytest.raises(DivergedError) as caught:
        run(experiment(strategy, lr=1e38, rounds=20))
    assert len(caught.value.result.records) == caught.value.result.summary["diverged"]["round"]


# --- user-defined parts ---------------------------------------------------------------------------------------------


def test_the_example_runs(tmp_path):
    """As its docstring says, through the command line, from the repository."""
    done = subprocess.run(
        [sys.executable, "-m", "fedpns_ray", "run", "--strategy", "examples.newcomers:Newcomers", "--set", "patience=2",
         "--nodes", "10", "--samples-per-node", "30", "--rounds", "6", "--in-process", "--out", str(tmp_path / "r")],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "examples.newcomers:Newcomers: final accuracy" in done.stdout


def test_the_example_draws_in_turn_and_goes_on_from_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    e = Experiment(strategy="examples.newcomers:Newcomers", patience=0, nodes=10, samples_per_node=30, rounds=20)
    own = {"selection": "examples.newcomers:LeastDrawn", "aggregation": "optimal"}
    assert e.parts == {**PRESETS["fedavg"].parts, **own}
    assert Experiment(**e.settings()) == e and "selection" not in e.settings()
    whole, seen = run(e), []
    assert set(whole.summary["nodes"]["drawn"]) == {4}  # 20 rounds of 2 among 10
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 11)
    assert run(e, tmp_path / "r").summary["weights_sha256"] == whole.summary["weights_sha256"]
    text = (ROOT / "examples" / "newcomers.py").read_text()
    assert len(text.partition("class ")[2].strip().splitlines()) <= 32  # your own in about 30 lines


def test_a_class_or_a_preset_by_import_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    own = find_preset("examples.newcomers:LeastDrawn")
    assert own.parts == {**PRESETS["fedavg"].parts, "selection": "examples.newcomers:LeastDrawn"}
    assert "drawn least often" in own.what
    assert Preset("", selection=OortSelection).selection == "oort"
    with pytest.raises(InputError, match="is neither a fedpns_ray.strategies.Preset nor the class of a part"):
        find_preset("examples.newcomers:np")


def test_strategies_are_listed_with_their_parameters(capsys):
    assert main(["strategies"]) == 0
    listed = capsys.readouterr().out
    for name, preset in PRESETS.items():
        assert name in listed
        for key in parameters_of(preset.parts):
            assert key in listed
    for word in ("mu = 1.0", "gompertz = 5.0", "choices = 20", "pow-d|cpow-d|rpow-d", "Nishio", "needs devices"):
        assert word in listed
