"""Availability: timetables by hand, against plain loops, and in runs, where nobody who is away is drawn or asked."""

import time
from dataclasses import dataclass

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, Interrupted, run
from fedpns_ray.core.availability import NEVER, Always, Availability, Diurnal, Markov, Trace
from fedpns_ray.core.costs import Ledger
from fedpns_ray.core.interfaces import Nodes
from fedpns_ray.data import build_population
from fedpns_ray.data.fit import with_timetable
from fedpns_ray.registry import PRESETS
from fedpns_ray.strategies import Selection
from tests.strategies.made import devices
from tests.strategies.test_all import experiment

SMALL = {"nodes": 12, "fraction": 0.34, "samples_per_node": 30, "rounds": 8, "epochs": 1}


def nodes(count=6, **more):
    return Nodes(np.arange(count) + 10, np.zeros(count, dtype=bool), 2, **more)


def available(timetable, rounds):
    return np.array([timetable.next_rounds(t) == t for t in range(1, rounds + 1)])


def next_of(timetable, round, ahead=400):
    """The definition: the first round from this one on in which a node is there."""
    there = np.array([timetable.next_rounds(t) == t for t in range(round, round + ahead)])
    return np.where(there.any(axis=0), round + there.argmax(axis=0), NEVER)


# --- timetables ------------------------------------------------------------------------------------------------------


def test_always():
    assert Always().timetable(nodes(), 1, None) is None


def test_diurnal_by_hand():
    """Days of 4 rounds, half of them; sizes 10, 11, 12 start at ranks 0, 1/2, 1: rounds 0, 2 and 4 = 0 of a day."""
    timetable = Diurnal(day=4, online_share=0.5, coupling="by-size").timetable(nodes(3), 1, None)
    assert available(timetable, 6).T.astype(int).tolist() == [
        [1, 1, 0, 0, 1, 1],
        [0, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 1],
    ]
    assert timetable.next_rounds(2).tolist() == [2, 3, 2] and timetable.next_rounds(3).tolist() == [5, 3, 5]


def test_markov_in_the_long_run():
    """A share of 0.5 with a contrast of 0.5: 0.25 for the smallest node, 0.75 for the largest; stays of 5 rounds."""
    timetable = Markov(coupling="by-size").timetable(nodes(3), 1, None)
    there = available(timetable, 6000)
    np.testing.assert_allclose(there.mean(axis=0), [0.25, 0.5, 0.75], atol=0.06)
    stays = there[:, 0].sum() / ((~there[:-1, 0]) & there[1:, 0]).sum()
    assert stays == pytest.approx(5, rel=0.15)
    everyone = Markov(online_share=1.0, contrast=0).timetable(nodes(), 1, None)
    assert available(everyone, 50).all()


def test_markov_answers_in_any_order_and_by_seed():
    first, again = (Markov().timetable(nodes(), 7, None) for _ in range(2))
    there = available(first, 60)
    for t in (50, 3, 27, 60, 1):
        assert ((again.next_rounds(t) == t) == there[t - 1]).all()
    assert (available(Markov().timetable(nodes(), 8, None), 60) != there).any()


def test_nodes_that_hardly_ever_come_back_cost_little():
    """Thousands of rounds are looked ahead for them, in every round, which once took seconds for each."""
    timetable, began = Markov(online_rounds=1e308).timetable(nodes(), 7, None), time.monotonic()
    assert NEVER in [timetable.next_rounds(t).max() for t in range(1, 31)] and time.monotonic() - began < 20


@pytest.mark.parametrize("part", [Markov(online_share=0.2), Diurnal(day=7, online_share=0.3), Diurnal(day=1)])
def test_the_next_round_is_the_next_one(part):
    timetable = part.timetable(nodes(), 3, None)
    for t in (1, 2, 13, 40):
        assert timetable.next_rounds(t).tolist() == next_of(part.timetable(nodes(), 3, None), t).tolist()


def test_couplings():
    model = devices([5.0, 1.0, 3.0, 1.0], [1.0] * 4)
    labels = np.array([2, 0, 1, 2])
    by_speed = Diurnal(coupling="by-speed").ranks(nodes(4, devices=model), 1, labels)
    assert by_speed.tolist() == [1, 0, 0.5, 0]
    assert Diurnal(coupling="by-label").ranks(nodes(4), 1, labels).tolist() == [1, 0, 0.5, 1]
    assert Diurnal(coupling="by-size").ranks(nodes(4), 1, None).tolist() == [0, 1 / 3, 2 / 3, 1]
    assert Diurnal(coupling="by-label").ranks(nodes(2), 1, np.array([3, 3])).tolist() == [0.5, 0.5]
    assert len(set(Diurnal().ranks(nodes(4), 1, None).tolist())) == 4
    assert [part.needs_labels for part in (Markov(), Markov(coupling="by-label"), Always())] == [False, True, False]


def test_traces_by_hand(tmp_path):
    """Node 0: rounds 2, 3 and 6; node 1: rounds 1 to 4 in two rows that touch; node 2: never."""
    (tmp_path / "trace.csv").write_text("node,from,until\n0,6,7\n1,3,5\n0,2,4\n1,1,3\n")
    once = Trace(trace_file=str(tmp_path / "trace.csv")).timetable(nodes(3), 1, None)
    expected = [[0, 1, 1, 0, 0, 1, 0], [1, 1, 1, 1, 0, 0, 0], [0] * 7]
    assert available(once, 7).T.astype(int).tolist() == expected
    assert once.next_rounds(4).tolist() == [6, 4, NEVER] and once.next_rounds(7).tolist() == [NEVER] * 3
    again = Trace(trace_file=str(tmp_path / "trace.csv"), trace_period=6).timetable(nodes(3), 1, None)
    assert again.next_rounds(7).tolist() == [8, 7, NEVER] and again.next_rounds(5).tolist() == [6, 7, NEVER]
    assert again.next_rounds(100).tolist() == next_of(again, 100).tolist()


@pytest.mark.parametrize("content, said", [
    ("node,from\n0,1\n", "it must have the columns node,from,until"),
    ("node,from,until\n0,one,2\n", "all whole numbers"),
    ("node,from,until\n9,1,2\n", "has the row 9,1,2; nodes are 0 to 2"),
    ("node,from,until\n0,2,2\n", "has the row 0,2,2"),
    ("node,from,until\n0,0,2\n", "has the row 0,0,2"),
    ("node,from,until\n0,99999999999999999998,99999999999999999999\n", "until <= 1,000,000,000"),
    (None, "cannot be read"),
])  # fmt: skip
def test_bad_traces_are_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "trace.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=said) as caught:
        Trace(trace_file=str(path)).timetable(nodes(3), 1, None)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"trace_file: {path}")


def test_a_node_may_stay_for_good(tmp_path):
    (tmp_path / "trace.csv").write_text("node,from,until\n0,1,99999999999999999999\n")
    timetable = Trace(trace_file=str(tmp_path / "trace.csv")).timetable(nodes(1), 1, None)
    assert timetable.next_rounds(10**6)[0] == 10**6


# --- runs ------------------------------------------------------------------------------------------------------------


def timetable_of(e):
    population = build_population(e)
    return with_timetable(Nodes(population.sizes, population.iid, e.per_round), e, population).timetable


@pytest.mark.parametrize("strategy", PRESETS)
def test_nobody_who_is_away_is_drawn(strategy):
    """With fewer nodes there than asked for, and rounds in which nobody is there."""
    e = experiment(strategy, availability="markov", online_share=0.25, online_rounds=1.5, contrast=0, rounds=6, seed=4)
    there = available(timetable_of(e), 6)
    assert 0 in there.sum(axis=1) and there.sum(axis=1).max() < 8
    for record, present in zip(run(e).records, there, strict=True):
        assert set(record["drawn"]) <= set(np.flatnonzero(present).tolist())
        if strategy not in ("fedcs", "tifl", "clustered-size", "clustered-similarity"):  # which may draw fewer
            assert len(record["drawn"]) == min(4, present.sum()) or len(record["drawn"]) > 4


class Unaware(Selection):
    """Draws everybody and asks everybody, whoever is there."""

    name = "unaware"

    def trains(self, per_round):
        return 12

    def draw(self, rng, probe):
        losses = probe(range(12))
        assert np.isfinite(losses).tolist() == [node in probe.available for node in range(12)]
        assert ((probe.next_available() == probe._round) == np.isfinite(losses)).all()
        return range(12)


def test_a_selection_that_knows_nothing_of_it_draws_who_is_there():
    e = Experiment(strategy="tests.test_availability:Unaware", availability="diurnal", day=4, **SMALL)
    result = run(e)
    there = available(timetable_of(e), 8)
    assert [record["drawn"] for record in result.records] == [np.flatnonzero(row).tolist() for row in there]
    payload = result.weights.nbytes
    for record, row in zip(result.records, there, strict=True):  # who is away answers nothing, and costs nothing
        assert record["bytes_up"] == row.sum() * (payload + 8) and record["bytes_down"] == row.sum() * payload


@dataclass
class Weekends:
    """As in docs/parts/availability.md."""

    count: int

    def next_rounds(self, round):
        day = (round - 1) % 7
        return np.full(self.count, round if day >= 5 else round + 5 - day)


class Weekend(Availability):
    """Everybody is there on two rounds of seven."""

    name = "weekend"

    def timetable(self, nodes, seed, labels):
        return Weekends(nodes.count)


def test_ones_own():
    result = run(Experiment(availability="tests.test_availability:Weekend", **SMALL))
    assert [len(record["drawn"]) for record in result.records] == [0, 0, 0, 0, 0, 4, 4, 0]


def test_always_is_what_was_before():
    e = Experiment(**SMALL)
    assert "availability" not in e.settings() and run(e.but(availability="always")).records[0]["drawn"]
    ledger = Ledger(e, nodes(), 3, 4, {})
    assert ledger.available.tolist() == [0, 1, 2, 3, 4, 5] and ledger.next_available().tolist() == [3] * 6
    assert len(ledger([])) == 0


def test_resumed_to_the_same_bits(tmp_path):
    e, seen = Experiment(availability="markov", coupling="by-label", **SMALL), []
    with pytest.raises(Interrupted):
        run(e, tmp_path / "r", on_round=seen.append, stop=lambda: len(seen) >= 5)
    assert run(e, tmp_path / "r").summary["weights_sha256"] == run(e).summary["weights_sha256"]
    assert run(e).summary["weights_sha256"] != run(e.but(availability="always")).summary["weights_sha256"]


def test_bad_settings_are_refused():
    with pytest.raises(
        InputError, match="availability: 'sometimes' is unknown; choose from always, markov, diurnal, trace"
    ):
        Experiment(availability="sometimes")
    with pytest.raises(
        InputError, match="online_share: 0.3 is not allowed; it is only used with availability markov or"
    ):
        Experiment(online_share=0.3)
    with pytest.raises(InputError, match="trace_file: is missing; availability trace needs a CSV file"):
        run(Experiment(availability="trace", **SMALL))
    with pytest.raises(InputError, match="devices: off is not allowed; coupling by-speed needs a device model"):
        run(Experiment(availability="diurnal", coupling="by-speed", **SMALL))
