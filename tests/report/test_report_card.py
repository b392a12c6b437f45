"""The selection report card, by hand and from a run."""

import time
from dataclasses import replace

import numpy as np
import pytest

from fedpns_ray import Experiment, run
from fedpns_ray.data import build_population
from fedpns_ray.records.labels import read_labels
from fedpns_ray.records.storage import Storage
from fedpns_ray.reporting.collecting import gather
from fedpns_ray.reporting.report_card import COLUMNS, card, gini, jain, report_card
from fedpns_ray.reporting.runs import read_runs
from fedpns_ray.strategies.fedavg import RandomSelection
from fedpns_ray.terminal.screen import console
from fedpns_ray.terminal.study import _print_card


def test_indices_by_hand():
    """Draws 1, 2, 3, 2: Jain 64 / (4 x 18) = 8/9; Gini, over all pairs: mean |x - y| = 12/16, over 2 x 2."""
    draws = np.array([1, 2, 3, 2])
    assert jain(draws) == pytest.approx(8 / 9) and gini(draws) == pytest.approx(12 / 16 / 4)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_indices_at_their_ends(n):
    """All equal: 1 and 0. Always the same node: 1/n and (n - 1)/n. Nothing drawn: neither."""
    alone = np.eye(n, dtype=np.int64)[0] * 5
    assert jain(np.full(n, 3)) == pytest.approx(1) and gini(np.full(n, 3)) == pytest.approx(0)
    assert jain(alone) == pytest.approx(1 / n) and gini(alone) == pytest.approx((n - 1) / n)
    assert jain(np.zeros(n, dtype=np.int64)) is gini(np.zeros(n, dtype=np.int64)) is None


def test_gini_is_the_mean_difference():
    rng = np.random.default_rng(1)
    for _ in range(50):
        draws = rng.integers(0, 9, 6) + (np.arange(6) == 0)
        pairs = [abs(int(x) - int(y)) for x in draws for y in draws]
        assert gini(draws) == pytest.approx(np.mean(pairs) / (2 * draws.mean()))


def test_the_card_of_a_run(tmp_path):
    """Power-of-Choice asks 6 of 10 nodes in each of 5 rounds; everything else is counted again here, with loops."""
    settings = {"nodes": 10, "fraction": 0.3, "samples_per_node": 30, "epochs": 1, "rounds": 5, "sigma": 0.4}
    run(Experiment(strategy="power-of-choice", choices=6, size_spread=0.5, **settings), tmp_path / "r")
    (found,) = read_runs(Storage(tmp_path), ["r"])
    one = card(found)
    draws = [sum(node in record.drawn for record in found.records) for node in range(10)]
    labels = read_labels(found.summary.population, 10)
    held = [len({k for node in record.drawn for k in np.flatnonzero(labels[node])}) for record in found.records]
    assert one["losses_asked"] == 30 and one["selector_seconds"] > 0
    spent = [record.seconds_by_phase for record in found.records]
    assert one["selector_seconds"] == pytest.approx(sum(one["draw"] + one["select"] for one in spent))
    assert one["coverage"] == sum(times > 0 for times in draws) / 10
    assert one["drawn_iid_share"] == pytest.approx(sum(draws[:4]) / 15)
    assert one["drawn_samples"] == pytest.approx(sum(t * labels[k].sum() for k, t in enumerate(draws)) / 15)
    assert one["drawn_labels"] == pytest.approx(np.mean(held) / np.count_nonzero(labels.sum(axis=0)))
    assert one["draws_jain"] == jain(np.array(draws)) and set(one) == {column.key for column in COLUMNS}
    unfinished = replace(found, summary=None)
    assert set(card(unfinished).values()) == {None} == set(card(None).values())


def test_draws_of_nodes_with_wrong_labels(tmp_path):
    """Which nodes those are is known from the seed; a run without any says nothing."""
    settings = {"nodes": 10, "fraction": 0.3, "samples_per_node": 30, "epochs": 1, "rounds": 5}
    e = Experiment(noisy_nodes=0.4, label_noise=0.5, **settings)
    run(e, tmp_path / "noisy")
    run(Experiment(**settings), tmp_path / "clean")
    noisy, clean = read_runs(Storage(tmp_path), ["noisy", "clean"])
    wrong, right = build_population(e), build_population(Experiment(**settings))
    marked = {node for node in range(10) if not np.array_equal(wrong.own(node)[1], right.own(node)[1])}
    draws = [node for record in noisy.records for node in record.drawn]
    assert len(marked) == 4 and 0 < card(noisy)["drawn_noisy_share"] < 1
    assert card(noisy)["drawn_noisy_share"] == pytest.approx(sum(node in marked for node in draws) / len(draws))
    assert card(clean)["drawn_noisy_share"] is None


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_card_in_a_terminal_is_whole(study_folder, monkeypatch, width):
    """Columns that do not fit come below, beside the names of the settings again; traffic is among them."""
    results = gather([study_folder]).results
    monkeypatch.setattr(console, "width", width)
    with console.capture() as printed:
        _print_card(results)
    lines = printed.get().splitlines()
    assert max(map(len, lines)) <= width and "…" not in printed.get()
    shown = [cell.strip() for line in lines if line.startswith("│") for cell in line.strip("│").split("│")]
    header, rows, _ = report_card(results.trials, list(results.study.axes), intervals=False)
    assert {"sent by nodes (MB)", "sent to nodes (MB)"} <= set(header)
    for k in range(len(results.study.axes), len(header)):
        assert all(row[k] in shown for row in rows), header[k]
    tables = sum(line.startswith("└") for line in lines)
    assert len(shown) == len(rows) * (len(header) + (tables - 1) * len(results.study.axes))
    assert tables > 1 or width == 140


class Slow(RandomSelection):
    """Takes its time after training."""

    name = "slow"

    def sift(self, rng, updates):
        time.sleep(0.02)
        return updates

    def learn(self, updates, outcome):
        time.sleep(0.03)


def test_the_selector_is_charged_for_what_it_does_after_training():
    """A busy machine may hold up a draw, but not every one."""
    settings = {"nodes": 4, "samples_per_node": 30, "epochs": 1, "rounds": 6}
    spent = [r["seconds_by_phase"] for r in run(Experiment(selection=f"{__name__}:Slow", **settings)).records]
    assert all(one["select"] >= 0.05 for one in spent) and min(one["draw"] for one in spent) < 0.05
    assert all(one["aggregate"] >= 0 for one in spent)
