"""`fedpns conformance`: every strategy keeps the invariants, and every kind of mistake is found."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fedpns_ray import Experiment, run
from fedpns_ray.conformance.enumeration import ImproperError, distribution
from fedpns_ray.conformance.findings import findings
from fedpns_ray.conformance.invariants import INVARIANTS
from fedpns_ray.registry import PRESETS
from fedpns_ray.terminal.command_line import main

BROKEN = {
    "Twice": ("draws", "must return distinct nodes"),
    "Greedy": ("draws", "6 nodes train, 2 were announced"),
    "Improper": ("probabilities", "a probability is outside of 0 .. 1"),
    "Unequal": ("unbiased", "the mean over all nodes is"),
    "UnequalContinuous": ("unbiased", "the mean over all nodes is"),
    "Fixed": ("coverage", "nodes [2, 3, 4, 5] were never drawn"),
    "Restless": ("repeatable", "drawn twice from one stream"),
    "Forgetful": ("resumable", "restored with"),
    "Sociable": ("one node", "the only node was never drawn"),
    "Backwards": ("all equal", "the model moves by [-0.5"),
    "Normalised": ("zero norms", "the model is [nan"),
    "Demanding": ("few nodes", "larger sample than population"),
    "Hasty": ("few nodes", "larger sample than population"),
    "Hopeful": ("drop outs", "IndexError"),
}


def pages():
    """docs/strategies.py, as a module."""
    place = Path(__file__).parent.parent.parent / "docs" / "strategies.py"
    if "strategy_pages" not in sys.modules:
        spec = importlib.util.spec_from_file_location("strategy_pages", place)
        sys.modules["strategy_pages"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["strategy_pages"])
    return sys.modules["strategy_pages"]


@pytest.mark.parametrize("strategy", PRESETS)
def test_every_strategy_keeps_them(strategy):
    found = pages().found_of(strategy)
    assert [one.invariant for one in found] == list(INVARIANTS)
    assert not [one for one in found if one.result == "failed"]
    assert sum(one.result == "passed" for one in found) >= 8


def test_every_page_of_the_documentation_is_current():
    """What is generated in them is of this code, and the rest is written."""
    assert [place.name for place, text in pages().documents().items() if place.read_text() != text] == []
    assert {place.stem for place in pages().PAGES.glob("*.md")} == set(PRESETS)
    for name in PRESETS:
        text = (pages().PAGES / f"{name}.md").read_text()
        assert "SOURCE" not in text and "In the paper's notation." not in text  # the template's words
        assert "## The rule" in text and "## When it helps" in text


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_found_with_a_counterexample(name):
    invariant, words = BROKEN[name]
    path = f"tests.conformance.broken:{name}"
    (found,) = findings(path, {invariant: INVARIANTS[invariant]})
    assert found.result == "failed" and words in found.detail and "\n" not in found.detail


def test_every_invariant_can_fail():
    assert {invariant for invariant, _ in BROKEN.values()} == set(INVARIANTS)


def test_the_command(capsys):
    assert main(["conformance", "fedavg", "tests.conformance.broken:Fixed"]) == 1
    printed = capsys.readouterr().out
    assert "tests.conformance.broken:Fixed: coverage: 6 nodes, 2 per round, varied, round 1000: nodes [2, 3" in printed
    assert main(["conformance", "fedpns", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == len(INVARIANTS)
    assert found[2] == {
        "strategy": "fedpns",
        "invariant": "unbiased",
        "result": "not applicable",
        "detail": "the selection does not claim it",
    }
    for wrong in ("fedsgd", "no.such:Thing", "tests.conformance.broken:np"):
        assert main(["conformance", "fedavg", wrong]) == 2
        said = capsys.readouterr()
        assert said.out == "" and len(said.err.splitlines()) == 1


def test_a_round_that_draws_nobody_leaves_the_model():
    result = run(Experiment(strategy="tests.conformance.broken:Nobody", nodes=5, samples_per_node=20, rounds=2))
    first, last = result.records
    assert first["drawn"] == [] == first["aggregated"] and first["test_loss"] == last["test_loss"]


# --- the enumeration itself ------------------------------------------------------------------------------------------


def outcomes(draw):
    """The probability of every distinct outcome."""
    found = distribution(draw)
    assert found.exact
    table = {}
    for p, outcome in found.outcomes:
        table[outcome] = table.get(outcome, 0) + p
    return pytest.approx(table)


def test_choices_without_replacement_by_hand():
    """p = 1/2, 1/3, 1/6: first 0 and then 1 has 1/2 x (1/3) / (1/2) = 1/3; first 2 and then 0: 1/6 x (1/2) / (5/6)."""
    draw = lambda rng: tuple(int(k) for k in rng.choice(3, 2, replace=False, p=[1 / 2, 1 / 3, 1 / 6]))  # noqa: E731
    expected = {(0, 1): 1 / 3, (0, 2): 1 / 6, (1, 0): 1 / 4, (1, 2): 1 / 12, (2, 0): 1 / 10, (2, 1): 1 / 15}
    assert expected == outcomes(draw)


def test_coins_permutations_and_whole_numbers():
    assert outcomes(lambda rng: tuple(rng.random(2) < [0.25, 0.0])) == {(True, False): 0.25, (False, False): 0.75}
    assert outcomes(lambda rng: bool(np.float64(0.75) >= rng.random())) == {True: 0.75, False: 0.25}
    assert {k: 1 / 4 for k in range(1, 5)} == outcomes(lambda rng: int(rng.integers(1, 4, endpoint=True)))
    six = outcomes(lambda rng: tuple(rng.permutation(3).tolist()))
    assert {order: 1 / 6 for order in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]} == six


def test_choices_are_those_of_numpy():
    """What is enumerated is what the real generator does: 20,000 draws agree within 5 standard errors."""
    p = np.array([0.1, 0.2, 0.3, 0.4])
    exact = distribution(lambda rng: rng.choice(4, 2, replace=False, p=p))
    mean, _ = exact.mean(lambda drawn: np.isin(np.arange(4), drawn).astype(float))
    rng = np.random.default_rng(1)
    counts = np.bincount(np.concatenate([rng.choice(4, 2, replace=False, p=p) for _ in range(20000)])) / 20000
    np.testing.assert_allclose(mean, counts, atol=5 * 0.5 / np.sqrt(20000))


def test_what_is_continuous_is_sampled():
    found = distribution(lambda rng: rng.normal())
    assert not found.exact and len(found.outcomes) > 1000
    assert not distribution(lambda rng: float(np.sqrt(rng.random()))).exact
    with pytest.raises(ImproperError, match=r"sum to 1.1: 0.6, 0.5"):
        distribution(lambda rng: rng.choice(2, p=[0.6, 0.5]))
