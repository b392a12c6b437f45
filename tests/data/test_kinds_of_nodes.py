"""Mixtures, natural owners, label noise, and partitions in files."""

import json
import os
import threading

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, load, run
from fedpns_ray.data import build_population
from fedpns_ray.data.datasets.images import MnistDataset
from fedpns_ray.data.interfaces import Samples
from fedpns_ray.data.partitions.natural import NaturalPartition
from fedpns_ray.data.population import from_lists
from fedpns_ray.registry import PARTS
from fedpns_ray.terminal.command_line import main


def test_existing_experiments_keep_their_settings():
    assert list(Experiment().settings()) == [
        "strategy", "dataset", "partition", "nodes", "sigma", "varrho", "labeller", "test_nodes", "samples_per_node",
        "size_spread", "model", "vectorize", "fraction", "rounds", "epochs", "batch_size", "lr", "lr_decay", "lr_floor",
        "drop_probability", "slow_fraction", "slow_seconds", "evaluate_every", "seed",
        "alpha", "beta", "v", "expectation", "check_samples", "check_draw",
    ]  # fmt: skip


# --- natural ---------------------------------------------------------------------------------------------------------


def owned(counts):
    owner = np.repeat(np.arange(len(counts)), counts)
    x = np.zeros((len(owner), 1), dtype=np.float32)
    return Samples(x, owner % 2, x, owner % 2, classes=2, train_node=owner)


def test_natural_owners_keep_all_their_samples_and_small_ones_are_left_out():
    samples, sizes = owned([3, 1, 2, 5, 1, 4]), np.full(4, 99)
    held = NaturalPartition().spread(np.random.default_rng(1), samples, sizes)
    assert [own.tolist() for own in held] == [[0, 1, 2], [4, 5], [6, 7, 8, 9, 10], [12, 13, 14, 15]]
    fewer = {
        tuple(len(own) for own in NaturalPartition(min_samples=3).spread(np.random.default_rng(k), samples, sizes[:2]))
        for k in range(20)
    }
    assert fewer == {(3, 5), (3, 4), (5, 4)}
    with pytest.raises(InputError, match=r"nodes: 4 is not allowed; the data set has 3 owners with at least 3 samples"):
        NaturalPartition(min_samples=3).spread(np.random.default_rng(1), samples, sizes)


class Letters(MnistDataset):
    """A data set with owners."""

    name = "letters"
    partitions = ("natural", "iid")
    defaults = {"partition": "natural", "model": "mlr", "nodes": 2, "fraction": 1}  # noqa: RUF012

    def load(self):
        return owned([3, 4, 2])


def test_sizes_are_refused_where_nodes_have_their_own(monkeypatch):
    monkeypatch.setitem(PARTS["dataset"], "letters", Letters)
    for size in ({"samples_per_node": 5}, {"size_spread": 0.5}):
        with pytest.raises(InputError, match=r"with partition natural nodes have sizes of their own; leave it out"):
            Experiment(dataset="letters", **size)
    e = Experiment(dataset="letters", min_samples=3)
    assert "samples_per_node" not in e.settings() and Experiment(**e.settings()) == e
    assert (
        e.but(partition="iid").settings()["samples_per_node"] == 200
        and "min_samples" not in e.but(partition="iid").settings()
    )
    assert build_population(e).sizes.tolist() == [3, 4]
    with pytest.raises(InputError, match=r"min_samples: 5 is not allowed; dataset synthetic makes its own nodes"):
        Experiment(min_samples=5)


# --- mixture ---------------------------------------------------------------------------------------------------------

SMALL = {"dataset": "mnist", "nodes": 100, "samples_per_node": 50}


def test_the_papers_partition_is_a_mixture(mnist):
    paper = build_population(Experiment(**SMALL, sigma=0.2, rho=1))
    mixed = build_population(Experiment(**SMALL, partition="mixture", components="0.2 iid, 0.8 labels 1"))
    assert np.array_equal(paper.iid, mixed.iid) and np.array_equal(paper.sizes, mixed.sizes)
    assert ((mixed.histogram[20:] == 50).sum(axis=1) == 1).all()
    assert mixed.q_dif[:20].mean() == pytest.approx(paper.q_dif[:20].mean(), abs=0.1)
    assert mixed.hellinger[20:].mean() == pytest.approx(paper.hellinger[20:].mean(), abs=0.05)


def test_a_mixture_has_each_kind_in_its_share(mnist):
    text = "0.3 labels 2, 0.2 iid, 0.25 dirichlet 0.01, 0.25 dirichlet 1000"
    p = build_population(Experiment(**SMALL, partition="mixture", components=text))
    labels = (p.histogram > 0).sum(axis=1)
    assert p.iid.sum() == 20 and p.iid[:20].all()  # i.i.d. nodes come first
    assert (labels[20:50] == 2).all() and (p.histogram[20:50].max(axis=1) == 25).all()
    assert labels[50:75].mean() < 2 and labels[75:].mean() > 9
    assert len(np.unique(p.held.of(20, 100))) == 80 * 50  # nobody shares while there is enough
    again = build_population(Experiment(**SMALL, partition="mixture", components=text))
    assert again.sha256 == p.sha256
    everyone = build_population(Experiment(**SMALL, partition="mixture", components="1 iid"))
    assert everyone.iid.all()


@pytest.mark.parametrize(
    "text",
    ["", "iid", "0.2 iid", "0.5 iid, 0.6 labels 1", "1 labels", "1 labels 1.5", "1 labels nan", "1 dirichlet 0",
     "nan iid", "1 iid 3", "1 shards 2", "-1 iid, 2 labels 1", "1 labels 11", "1 labels inf"],
)  # fmt: skip
def test_a_mixture_that_makes_no_sense_is_refused_in_one_line(text):
    with pytest.raises(InputError, match=r"^components: .* is not allowed; .+$"):
        Experiment(dataset="mnist", partition="mixture", components=text)


# --- label noise -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [50, 1200])
def test_label_noise_changes_so_many_labels_on_so_many_nodes(nodes):
    plain = Experiment(nodes=nodes, samples_per_node=50)
    clean, noisy = build_population(plain), build_population(plain.but(noisy_nodes=0.3, label_noise=0.25))
    wrong = [int((clean.own(k)[1] != noisy.own(k)[1]).sum()) for k in range(nodes)]
    assert sorted(set(wrong)) == [0, 10] and sum(wrong) == 0.3 * nodes * 10
    assert np.array_equal(clean.own(3)[0], noisy.own(3)[0])
    assert np.array_equal(clean.samples.test_y, noisy.samples.test_y)
    summary = noisy.summary()
    assert summary["noisy_nodes"] == 0.3 * nodes and summary["sha256"] != clean.sha256
    expected = [np.bincount(noisy.own(int(k))[1], minlength=10) for k in noisy.described]
    assert np.array_equal(noisy.histogram, expected)
    assert build_population(plain.but(noisy_nodes=0.3, label_noise=0.25)).sha256 == noisy.sha256
    assert build_population(plain.but(noisy_nodes=0.3, label_noise=0.5)).sha256 != noisy.sha256


def test_label_noise_is_part_of_a_run(tmp_path):
    base = {"nodes": 10, "samples_per_node": 30, "rounds": 2, "epochs": 1, "strategy": "fedavg"}
    clean = run(Experiment(**base), progress=False)
    noisy = run(Experiment(**base, noisy_nodes=0.5), tmp_path / "r", progress=False)
    assert clean.summary["weights_sha256"] != noisy.summary["weights_sha256"]
    assert load(tmp_path / "r").summary["population"]["noisy_nodes"] == 5
    central = Experiment(**base, noisy_nodes=0.5, centralised=True)
    assert run(central, progress=False).summary["weights_sha256"] == noisy.summary["weights_sha256"]


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("partition", ["sigma-rho", "dirichlet"])
def test_a_partition_survives_a_file(mnist, tmp_path, capsys, partition, kind):
    path = tmp_path / f"part.{kind}"
    asked = ["--dataset", "mnist", "--nodes", "30", "--samples-per-node", "40", "--partition", partition]
    assert main(["data", "show", *asked, "--export", str(path)]) == 0
    flags = " ".join(capsys.readouterr().out.split()).partition("use it with ")[2].split()
    given = dict(zip([flag[2:].replace("-", "_") for flag in flags[::2]], flags[1::2], strict=True))
    again = build_population(Experiment(dataset="mnist", **given))
    e = Experiment(dataset="mnist", nodes=30, samples_per_node=40, partition=partition)
    assert again.sha256 == build_population(e).sha256
    assert main(["data", "show", *asked, "--export", str(path)]) == 2  # never overwritten


WRONG = [
    ([[1], []], "partition: file leaves node 1 without a sample"),
    ([[1], [60_000]], "partition: file gives node 1 the sample 60000; it must be from 0 to 59999"),
    ([[1], [-1]], "partition: file gives node 1 the sample -1"),
    ([[1]], "nodes: 2 is not allowed; .* has 1 nodes; use --nodes 1"),
    ({"0": [1], "2": [1]}, "node: 1 is missing"),
    ([[1], [True]], "node 1: its samples must be a list of whole numbers"),
    ([[1], [10**30]], "partition_file: .* cannot be read"),
    (7, "it must be lists of sample indices"),
]


@pytest.mark.parametrize(("content", "said"), WRONG, ids=lambda value: str(value)[:30])
def test_a_file_that_does_not_fit_is_refused_in_one_line(mnist, tmp_path, content, said):
    path = tmp_path / "part.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=said) as caught:
        build_population(Experiment(dataset="mnist", partition="file", partition_file=str(path), nodes=2, fraction=1))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_or_no_partition_is_refused(mnist, tmp_path):
    with pytest.raises(InputError, match="partition_file: is missing"):
        Experiment(dataset="mnist", partition="file")
    with pytest.raises(InputError, match=r"it must end in .json or .parquet"):
        Experiment(dataset="mnist", partition="file", partition_file="x.csv")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
    for name in ("gone.json", "x.parquet"):
        with pytest.raises(InputError, match=r"partition_file: .* cannot be read"):
            build_population(Experiment(dataset="mnist", partition="file", partition_file=str(tmp_path / name)))
    with pytest.raises(InputError, match=r"samples_per_node: 5 is not allowed; with partition file nodes have sizes"):
        Experiment(dataset="mnist", partition="file", partition_file="x.json", samples_per_node=5)
    assert main(["data", "show", "--export", str(tmp_path / "p.json"), "--nodes", "20"]) == 2  # nothing to point to


# --- statistics ------------------------------------------------------------------------------------------------------


def test_what_is_no_file_or_larger_than_the_memory_is_refused(mnist, tmp_path):
    """A FIFO would wait for its writer: here one comes, so that this test ends in any case."""
    os.mkfifo(fifo := tmp_path / "fifo.json")
    threading.Thread(target=lambda: os.close(os.open(fifo, os.O_WRONLY)), daemon=True).start()
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "large.json").touch()
    os.truncate(tmp_path / "large.json", 2**40)  # takes no place on the disk
    for name, said in {"fifo.json": "is a FIFO", "folder.parquet": "is a folder", "large.json": "has 1,099"}.items():
        with pytest.raises(InputError, match=f"partition_file: .* cannot be read \\(it {said}"):
            build_population(Experiment(dataset="mnist", partition="file", partition_file=str(tmp_path / name)))
    os.close(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))


def test_hellinger_by_hand():
    x, y = np.zeros((4, 1), dtype=np.float32), np.array([0, 0, 1, 1])
    held = [np.array([0, 1]), np.array([2, 3]), np.array([0, 2])]
    p = from_lists(Samples(x, y, x, y, classes=2), held, np.zeros(3, dtype=bool))
    apart = np.sqrt(1 - np.sqrt(0.5))  # (1, 0) against (1/2, 1/2)
    assert p.hellinger.tolist() == pytest.approx([apart, apart, 0])
    assert p.summary()["hellinger"] == round(2 * apart / 3, 4)


def test_label_noise_without_noisy_nodes_is_refused_and_dropped_where_it_comes_along():
    with pytest.raises(InputError, match="label_noise: 0.3 is not allowed; it is only used with noisy_nodes above 0"):
        Experiment(label_noise=0.3)
    noisy = Experiment(noisy_nodes=0.2, label_noise=0.3)
    assert noisy.but(noisy_nodes=0) == Experiment() and noisy.settings()["label_noise"] == 0.3


def test_a_strategys_own_parameters_do_not_decide_the_data():
    first, second = (Experiment(strategy="examples.newcomers:Newcomers", patience=k) for k in (1, 2))
    assert first.data_settings() == second.data_settings() == Experiment().data_settings()
    read, other = (Experiment.recorded(e.settings()) for e in (first, second))  # nothing is imported
    assert read.data_settings() == other.data_settings() and "patience" not in read.data_settings()
    own = {"dataset": "examples.own_dataset:Rings", "strategy": "fedpns", "alpha": 3}
    sharp, blurred = (Experiment.recorded({**own, "noise": noise}).data_settings() for noise in (0.1, 0.2))
    assert (sharp["noise"], blurred["noise"]) == (0.1, 0.2) and "alpha" not in sharp
