"""FEMNIST, on a small set in LEAF's layout."""

import gzip
import json
import os

import numpy as np
import pytest

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.data import build_population
from fedpns_ray.data.datasets.femnist import FemnistDataset
from fedpns_ray.terminal.command_line import main

RNG = np.random.default_rng(2)
COUNTS = {"f0002_10": 5, "f0001_41": 3, "f3000_00": 8, "f0000_14": 2}


def leaf(counts, **changes):
    """One of LEAF's files: every image of a writer has the writer's number as its first pixels."""
    data = {}
    for user, count in counts.items():
        x = np.tile(int(user[1:5]) % 256 / 255, (count, 784))
        data[user] = {"x": x.tolist(), "y": [k % 62 for k in range(count)]}
    return {"users": list(counts), "num_samples": list(counts.values()), "user_data": data} | changes


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPNS_DATA", str(tmp_path))
    for half in ("train", "test"):
        (tmp_path / "femnist" / half).mkdir(parents=True)
    users = list(COUNTS)
    for k, some in enumerate((users[:2], users[2:])):
        (tmp_path / "femnist" / "train" / f"all_data_{k}.json").write_text(
            json.dumps(leaf({u: COUNTS[u] for u in some}))
        )
    packed = gzip.compress(json.dumps(leaf(dict.fromkeys(users, 2))).encode())
    (tmp_path / "femnist" / "test" / "all_data_0.json.gz").write_bytes(packed)
    return tmp_path


def test_writers_are_owners(root, capsys):
    e = Experiment(dataset="femnist", strategy="fedavg", nodes=4, fraction=0.5, rounds=2)
    assert e.partition == "natural"
    population = build_population(e)
    samples = population.samples
    assert samples.train_x.shape == (18, 1, 28, 28) and samples.train_x.dtype == np.uint8 and samples.classes == 62
    assert population.sizes.tolist() == [2, 3, 5, 8]  # in the order of the writers' names
    for node, pixel in enumerate((0, 1, 2, 3000 % 256)):
        assert (samples.train_x[population.held_by(node)] == pixel).all()
    assert samples.test_y.tolist() == [0, 1] * 4
    assert run(e).summary.rounds == 2
    assert main(["data", "verify", "femnist"]) == 0
    assert "femnist: in LEAF's layout: 18 images of 4 writers" in capsys.readouterr().out


def test_what_was_prepared_is_made_again_when_the_files_change(root):
    assert len(FemnistDataset().load().train_y) == 18
    path = root / "femnist" / "train" / "all_data_1.json"
    path.write_text(json.dumps(leaf({"f3000_00": 1})))
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + 10))
    with pytest.raises(InputError, match="femnist.npz differs from the official files"):
        FemnistDataset().verify(root)
    assert len(FemnistDataset().load().train_y) == 9


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_samples": [9]}, r"is not in LEAF's layout \(ValueError: num_samples does not count"),
        ({"users": ["f9999_99"]}, r"is not in LEAF's layout \(KeyError: 'f9999_99'\)"),
        ({"user_data": {"f3000_00": {"x": [[0.5] * 783], "y": [1]}}}, "an image of writer f3000_00 that is not 784"),
        ({"user_data": {"f3000_00": {"x": [["a"] * 784], "y": [1]}}}, "an image of writer f3000_00 that is not 784"),
        ({"user_data": {"f3000_00": {"x": [[2.0] * 784], "y": [1]}}}, "a pixel of writer f3000_00 that is not from 0"),
        ({"user_data": {"f3000_00": {"x": [[float("nan")] * 784], "y": [1]}}}, "a pixel of writer f3000_00 that is"),
        ({"user_data": {"f3000_00": {"x": [[0.5] * 784], "y": [62]}}}, "a label of writer f3000_00 .* from 0 to 61"),
        ({"user_data": {"f3000_00": {"x": [[0.5] * 784], "y": [1.5]}}}, "a label of writer f3000_00 .* from 0 to 61"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(root, changes, problem):
    (root / "femnist" / "train" / "all_data_1.json").write_text(json.dumps(leaf({"f3000_00": 1}, **changes)))
    with pytest.raises(InputError, match=problem) as refused:
        build_population(Experiment(dataset="femnist", nodes=2, fraction=0.5))
    assert "all_data_1.json" in str(refused.value) and "\n" not in str(refused.value)


def test_missing_and_double_files(root, tmp_path):
    (root / "femnist" / "train" / "copy.json").write_text(json.dumps(leaf({"f3000_00": 1})))
    with pytest.raises(InputError, match="copy.json holds writer f3000_00, as another file does"):
        FemnistDataset().load()
    for path in (root / "femnist" / "train").iterdir():
        path.write_text("{")
    with pytest.raises(InputError, match="all_data_0.json is not in LEAF's layout"):
        FemnistDataset().load()
    for path in (root / "femnist" / "train").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"femnist has no files train/\*.json in .*; data/femnist/preprocess.sh of"):
        FemnistDataset().load()
