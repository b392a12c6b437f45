"""Who holds what: the paper's partition, the others, and synthetic data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpns_ray import Experiment, InputError
from fedpns_ray.core.streams import stream
from fedpns_ray.data import build_population
from fedpns_ray.data.datasets.synthetic import FEATURES
from fedpns_ray.data.partitions.dirichlet import dirichlet
from fedpns_ray.data.partitions.iid import iid
from fedpns_ray.data.partitions.pile import node_sizes
from fedpns_ray.data.partitions.shards import shards
from fedpns_ray.data.partitions.sigma_rho import sigma_rho

LABELS = np.repeat(np.arange(10), 300)


@pytest.fixture(scope="module")
def paper(mnist):
    return build_population(Experiment(dataset="mnist", sigma=0.2, rho=2))


def test_the_papers_partition(paper):
    assert paper.count == 50 and (paper.sizes == 200).all()
    assert paper.iid.tolist() == [True] * 10 + [False] * 40
    assert ((paper.histogram[10:] == 100).sum(axis=1) == 2).all() and (
        (paper.histogram[10:] > 0).sum(axis=1) == 2
    ).all()
    assert ((paper.histogram[:10] > 5).all(axis=1)).all()
    iid = np.concatenate([paper.held_by(node) for node in range(10)])
    assert len(np.unique(iid)) == len(iid)
    assert (paper.q_dif[10:] > 1.2).all() and (paper.q_dif[:10] < 0.5).all()


def test_same_seed_same_partition_whatever_else_changes(mnist, paper):
    same = build_population(Experiment(dataset="mnist", sigma=0.2, rho=2, strategy="bn2", rounds=3, model="mlr", lr=1))
    assert same.sha256 == paper.sha256 and np.array_equal(same.indices, paper.indices)
    other = build_population(Experiment(dataset="mnist", sigma=0.2, rho=2, seed=2))
    assert other.sha256 != paper.sha256


def test_q_dif_by_hand():
    from fedpns_ray.data.interfaces import Samples
    from fedpns_ray.data.population import from_lists

    x, y = np.zeros((4, 1), dtype=np.float32), np.array([0, 0, 1, 1])
    samples = Samples(x, y, x, y, classes=2)
    population = from_lists(
        samples, [np.array([0, 1]), np.array([2, 3]), np.array([0, 2])], np.array([False, False, True])
    )
    assert population.histogram.tolist() == [[2, 0], [0, 2], [1, 1]]
    assert population.q_dif.tolist() == [1, 1, 0]  # against (1/2, 1/2)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["iid", "sigma-rho", "dirichlet", "shards"]), st.integers(1, 40), st.integers(1, 60),
    st.floats(0, 1.5), st.integers(0, 5),
)  # fmt: skip
def test_every_partition_hands_out_what_was_asked_for(kind, nodes, samples, spread, seed):
    rng = np.random.default_rng(seed)
    sizes = node_sizes(rng, nodes, samples, spread)
    assert (sizes >= 1).all() and (spread > 0 or (sizes == samples).all())
    make = {
        "iid": lambda: iid(rng, LABELS, sizes),
        "sigma-rho": lambda: sigma_rho(rng, LABELS, 10, sizes, nodes // 3, 1),
        "dirichlet": lambda: dirichlet(rng, LABELS, 10, sizes, 0.3),
        "shards": lambda: shards(rng, LABELS, sizes, 2),
    }
    try:
        held = make[kind]()
    except InputError as error:
        assert sizes.max() > 30 and "samples_per_node" in str(error)
        return
    assert [len(own) for own in held] == sizes.tolist()
    for own in held:
        assert len(np.unique(own)) == len(own)  # never the same sample twice on one node
        if kind == "shards" and nodes >= 5:
            assert len(np.unique(LABELS[own])) <= 4  # two shards, each across at most one border


def test_mean_size_is_kept_when_sizes_spread():
    sizes = node_sizes(stream(1, "sizes"), 20000, 200, 0.5)
    assert sizes.mean() == pytest.approx(200, rel=0.02) and np.log(sizes).std() == pytest.approx(0.5, rel=0.05)


def test_dirichlet_concentration_moves_from_skewed_to_even():
    def q_dif(concentration):
        held = dirichlet(np.random.default_rng(0), LABELS, 10, np.full(50, 100), concentration)
        share = np.array([np.bincount(LABELS[own], minlength=10) / 100 for own in held])
        return np.abs(share - 0.1).sum(axis=1).mean()

    assert q_dif(0.05) > 1.3 > 0.6 > q_dif(100)


def test_too_many_samples_for_a_label_is_refused(mnist):
    with pytest.raises(
        InputError,
        match=r"samples_per_node: a node would hold 7000 samples of label \d, of which there are \d{4}; lower it",
    ):
        build_population(Experiment(dataset="mnist", samples_per_node=7000))
    with pytest.raises(
        InputError, match="a node would hold 70000 samples of the training set, of which there are 60000"
    ):
        build_population(Experiment(dataset="mnist", samples_per_node=70000, partition="iid"))


def test_more_nodes_than_data_start_the_pile_again(mnist):
    population = build_population(Experiment(dataset="mnist", nodes=2000, samples_per_node=100))
    assert population.summary()["samples"] == 200_000 and population.summary()["distinct_samples"] == 60_000


def test_synthetic_follows_the_paper():
    e = Experiment(nodes=20, sigma=0.5, samples_per_node=4000, varrho=1.0)
    p = build_population(e)
    assert (p.sizes == 3200).all() and len(p.samples.test_y) == 10 * 800 and p.samples.shape == (FEATURES,)
    x = p.samples.train_x
    iid = x[p.indices[: p.offsets[10]]]
    np.testing.assert_allclose(iid.mean(axis=0), 0, atol=0.03)
    np.testing.assert_allclose(iid.var(axis=0), np.arange(1, 61) ** -1.2, rtol=0.08)
    means = np.array([x[p.held_by(node)].mean(axis=0) for node in range(10, 20)])
    assert means.std(axis=1).mean() == pytest.approx(1, rel=0.15)  # the elements of o_i ~ N(B_i, 1)
    assert build_population(e.but(test_nodes="all")).samples.test_y.shape == (20 * 800,)


def test_synthetic_labels_come_from_one_linear_labeller():
    """One (w, b) classifies every node's samples, unless each non-i.i.d. node has its own."""
    from fedpns_ray.data.datasets.synthetic import _labeller

    for labeller, agrees in (("shared", True), ("own", False)):
        p = build_population(Experiment(nodes=10, sigma=0.5, labeller=labeller, samples_per_node=500))
        w, b = _labeller(stream(1, "labeller"))
        predicted = np.argmax(p.samples.train_x @ w.T + b, axis=1)
        iid = slice(0, p.offsets[5])
        assert (predicted[iid] == p.samples.train_y[iid]).mean() > 0.999
        assert ((predicted == p.samples.train_y).mean() > 0.999) == agrees


def test_varrho_is_a_variance():
    def centres(varrho):
        p = build_population(Experiment(nodes=400, sigma=0.01, samples_per_node=10, varrho=varrho))
        x = p.samples.train_x
        return np.array([x[p.held_by(node)].mean() for node in range(4, 400)])

    assert centres(4.0).var() == pytest.approx(4 + 1 / 60, rel=0.2)
    assert centres(0.0).var() == pytest.approx(1 / 60, rel=0.3)


def test_synthetic_without_a_test_set_is_refused():
    with pytest.raises(InputError, match="sigma: none of 50 nodes is i.i.d."):
        build_population(Experiment(sigma=0))
    assert build_population(Experiment(sigma=0, test_nodes="all", samples_per_node=10)).count == 50
    with pytest.raises(InputError, match="samples_per_node: nodes of 2 samples leave none"):
        build_population(Experiment(samples_per_node=2))
