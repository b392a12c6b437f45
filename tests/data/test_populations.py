"""Populations of any size: nodes cost nothing until they train, and hold the same samples as before."""

import pickle

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.data import build_population
from fedpns_ray.data.datasets.synthetic import SyntheticNodes
from fedpns_ray.data.holdings import dealt, joined, listed
from fedpns_ray.data.partitions.dirichlet import dirichlet
from fedpns_ray.data.partitions.iid import iid
from fedpns_ray.data.partitions.pile import node_sizes
from fedpns_ray.data.partitions.sigma_rho import distinct_labels, sigma_rho
from fedpns_ray.data.population import GeneratedPopulation
from fedpns_ray.terminal.command_line import main

LABELS = np.repeat(np.arange(10), [300, 250, 40, 300, 310, 90, 300, 300, 300, 299])


class Pile:
    """The partitions as they were first written, node by node."""

    def __init__(self, rng, positions):
        self.shuffled, self.next = rng.permutation(positions), 0

    def take(self, count):
        at = (self.next + np.arange(count)) % len(self.shuffled)
        self.next += count
        return self.shuffled[at]


def piles_of(rng):
    return [Pile(rng, np.flatnonzero(np.equal(LABELS, label))) for label in range(10)]


def plain_iid(rng, sizes):
    whole = Pile(rng, np.arange(len(LABELS)))
    return [whole.take(size) for size in sizes]


def plain_sigma_rho(rng, sizes, iid_nodes, rho):
    held = plain_iid(rng, sizes[:iid_nodes]) if iid_nodes else []
    piles = piles_of(rng)
    for size in sizes[iid_nodes:]:
        chosen = rng.choice(10, size=rho, replace=False)
        parts = [len(part) for part in np.array_split(np.arange(size), rho)]
        held.append(np.concatenate([piles[label].take(part) for label, part in zip(chosen, parts, strict=True)]))
    return held


def plain_dirichlet(rng, sizes, concentration):
    piles = piles_of(rng)
    counts = [rng.multinomial(int(size), rng.dirichlet(np.full(10, concentration))) for size in sizes]
    return [np.concatenate([pile.take(n) for pile, n in zip(piles, row, strict=True)]) for row in counts]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.0, 0.4])
@pytest.mark.parametrize("nodes", [1, 60, 700])
def test_dealing_all_nodes_at_once_gives_what_dealing_one_by_one_gave(nodes, spread, seed):
    sizes = np.minimum(node_sizes(np.random.default_rng(seed), nodes, 23, spread), 40)
    pairs = [(lambda rng: iid(rng, LABELS, sizes), lambda rng: plain_iid(rng, sizes))]
    for rho in (1, 2, 5, 10):
        for n in {0, nodes // 3, nodes}:
            pairs.append(
                (lambda rng, n=n, rho=rho: sigma_rho(rng, LABELS, 10, sizes, n, rho),
                 lambda rng, n=n, rho=rho: plain_sigma_rho(rng, sizes, n, rho))
            )  # fmt: skip
    pairs.append((lambda rng: dirichlet(rng, LABELS, 10, sizes, 5.0), lambda rng: plain_dirichlet(rng, sizes, 5.0)))
    for new, old in pairs:
        found, expected = new(np.random.default_rng(seed)), old(np.random.default_rng(seed))
        assert len(found) == len(expected) == nodes
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        assert np.array_equal(found.of(0, nodes), np.concatenate(expected)) and np.array_equal(found.sizes, sizes)


@pytest.mark.parametrize(("classes", "rho"), [(1, 1), (2, 2), (10, 3), (62, 5), (100, 100), (10_001, 300)])
def test_labels_are_those_that_numpy_draws_one_node_at_a_time(classes, rho):
    mine, plain = np.random.default_rng(5), np.random.default_rng(5)
    expected = [plain.choice(classes, size=rho, replace=False) for _ in range(30)]
    assert np.array_equal(distinct_labels(mine, classes, rho, 30), expected) and mine.random() == plain.random()


def test_holdings_by_hand():
    a = dealt([np.array([7, 8, 9]), np.array([1, 2])], np.array([[0, 1], [0, 1]]), np.array([[2, 1], [2, 2]]))
    assert [own.tolist() for own in a] == [[7, 8, 1], [9, 7, 2, 1]] and a.sizes.tolist() == [3, 4]
    b = joined(a, listed([np.array([4]), np.array([5, 6])], 10))
    assert [own.tolist() for own in b] == [[7, 8, 1], [9, 7, 2, 1], [4], [5, 6]] and b.cards.dtype == np.int64
    with pytest.raises(IndexError):
        b[4]


# --- generated when they are drawn -----------------------------------------------------------------------------------

MANY = {"nodes": 1001, "samples_per_node": 40, "epochs": 1, "rounds": 2, "fraction": 0.01}


@pytest.mark.parametrize("settings", [{}, {"size_spread": 0.5}, {"labeller": "own", "test_nodes": "all"}], ids=str)
def test_a_generated_node_holds_the_same_samples_as_one_that_is_held(settings):
    """Nodes have streams of their own: the first of 1,001 are those of 1,000, where neither sizes nor sigma differ."""
    e = Experiment(**MANY | settings, sigma=200 / 1001)
    lazy = build_population(e)
    assert isinstance(lazy, GeneratedPopulation) and len(pickle.dumps(lazy)) < 3_000_000
    held = build_population(e.but(nodes=1000, sigma=0.2))
    assert np.array_equal(lazy.iid[:1000], held.iid)
    for node in (0, 199, 200, 777, 999):
        if lazy.sizes[node] == held.sizes[node]:  # log-normal sizes come from one stream
            for mine, theirs in zip(lazy.own(node), held.own(node), strict=True):
                assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs)
    assert np.array_equal(lazy.sizes[:1000], held.sizes)
    assert lazy.sha256 == build_population(e).sha256 != build_population(e.but(seed=2)).sha256
    assert lazy.sha256 != build_population(e.but(varrho=2)).sha256


@pytest.mark.parametrize(("test_nodes", "samples"), [("iid", 100), ("all", 100), ("iid", 60_000), ("all", 60_000)])
def test_the_test_set_of_generated_nodes_is_bounded(test_nodes, samples):
    nodes = 3000
    p = build_population(Experiment(nodes=nodes, samples_per_node=samples, test_nodes=test_nodes))
    assert p.samples.test_x.shape == (10_000, 60) and len(p.samples.train_y) == 0
    recipe = SyntheticNodes(1, np.full(nodes, samples), 600, 1.0, "shared", test_nodes)
    x, y = recipe.node(0)[1]
    assert np.array_equal(p.samples.test_x[: len(y)], x[:10_000]) and np.array_equal(
        p.samples.test_y[: len(y)], y[:10_000]
    )
    if samples == 100:  # 500 nodes of 20: the first i.i.d. ones, or evenly spaced ones to the last
        last = 499 if test_nodes == "iid" else 2999
        assert np.array_equal(p.samples.test_x[-20:], recipe.node(last)[1][0])


def test_statistics_of_generated_nodes_name_how_many_they_describe():
    p = build_population(Experiment(nodes=5000, samples_per_node=50))
    found = p.summary()
    assert found["described_nodes"] == 1000 == len(p.histogram) and p.described[[0, -1]].tolist() == [0, 4999]
    assert found["samples"] == found["distinct_samples"] == 5000 * 40 and found["iid_nodes"] == 1000
    assert found["q_dif_iid"] < found["q_dif_other"]
    assert "described_nodes" not in build_population(Experiment(nodes=1000, samples_per_node=5)).summary()


def test_a_generated_population_trains_probes_and_reports(tmp_path, capsys):
    for strategy in ("fedpns", "power-of-choice"):
        one, two = (run(Experiment(strategy=strategy, **MANY), progress=False) for _ in range(2))
        assert one.summary["weights_sha256"] == two.summary["weights_sha256"]
    run(Experiment(**MANY), tmp_path / "r", progress=False)
    assert main(["report", str(tmp_path / "r"), "--out", str(tmp_path / "p.html")]) == 0
    assert main(["data", "show", "--nodes", "1500", "--samples-per-node", "10", "--out", str(tmp_path / "p.png")]) == 0
    assert "described_nodes: 1000" in capsys.readouterr().out


def test_the_centralised_sequence_needs_all_samples():
    with pytest.raises(InputError, match="centralised: true is not allowed; .* at most 1000 nodes"):
        run(Experiment(**MANY, centralised=True), progress=False)


def test_too_small_nodes_are_refused_whether_held_or_generated():
    for nodes in (50, 5000):
        with pytest.raises(InputError, match="nodes of 2 samples leave none for the test set"):
            build_population(Experiment(nodes=nodes, samples_per_node=2))
        with pytest.raises(InputError, match="sigma: none of"):
            build_population(Experiment(nodes=nodes, sigma=0))


def test_100_000_nodes_with_samples_cost_bytes_per_node(mnist):
    p = build_population(Experiment(dataset="mnist", nodes=100_000, fraction=0.0001))
    arrays = (p.held.cards, p.held.piles, p.held.starts, p.held.counts, p.held.offsets)
    assert sum(array.nbytes for array in arrays) < 5_000_000 and p.own(99_999)[0].shape == (200, 1, 28, 28)
