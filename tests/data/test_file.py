"""`--dataset file`: arrays of one's own, with and without owners, and everything that is wrong with a file."""

import io
import os
import zipfile

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from fedpns_ray import Experiment, InputError, run, save_data
from fedpns_ray.data import build_population
from fedpns_ray.terminal.command_line import main

RNG = np.random.default_rng(7)
X = RNG.normal(size=(600, 5))
Y = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
GOOD = {"train_x": X[:500], "train_y": Y[:500], "test_x": X[500:], "test_y": Y[500:]}
SMALL = {"strategy": "fedavg", "nodes": 10, "samples_per_node": 20, "rounds": 2}


def written(folder, **changes):
    arrays = {name: value for name, value in (GOOD | changes).items() if value is not None}
    np.savez(folder / "my.npz", **arrays)
    return folder / "my.npz"


def test_features_are_stored_as_float32_and_classes_counted(tmp_path):
    e = Experiment(dataset="file", data_file=written(tmp_path), **SMALL)
    assert e.model == "mlr" and e.settings()["data_file"] == str(tmp_path / "my.npz")
    samples = build_population(e).samples
    assert samples.train_x.dtype == np.float32 and np.array_equal(samples.train_x, X[:500].astype(np.float32))
    assert samples.classes == 3 and samples.train_y.dtype == np.int64 and samples.train_node is None
    assert run(e).summary.rounds == 2


def test_images_and_tokens(tmp_path):
    grey = RNG.integers(0, 256, (600, 4, 4), dtype=np.uint8)
    path = written(tmp_path, train_x=grey[:500], test_x=grey[500:])
    samples = build_population(Experiment(dataset="file", data_file=path, **SMALL)).samples
    assert samples.train_x.shape == (500, 1, 4, 4) and samples.train_x.dtype == np.uint8
    path = written(tmp_path, train_x=grey[:500, 0].astype(np.int32), test_x=grey[500:, 0].astype(np.uint16))
    samples = build_population(Experiment(dataset="file", data_file=path, **SMALL)).samples
    assert samples.train_x.dtype == np.int64 and samples.shape == (4,)


def test_the_path_becomes_absolute_and_the_command_line_runs(tmp_path, monkeypatch, capsys):
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert Experiment(dataset="file", data_file="my.npz").data_file == str(tmp_path / "my.npz")
    words = ["run", "--dataset", "file", "--data-file", "my.npz", "--rounds", "1", "--nodes", "10", "--sigma", "0.5"]
    assert main([*words, "--samples-per-node", "20", "--in-process", "--out", "r"]) == 0
    assert f"data_file: {tmp_path / 'my.npz'}" in (tmp_path / "r" / "config.yaml").read_text()


def test_owners_by_hand(tmp_path):
    owner = np.array([30, 10, 20, 10, 30, 10] + [99] * 494)
    names = np.array([f"writer {k}" for k in owner])
    for given in (owner, names, -owner.astype(np.int64) * 10**12):
        path = written(tmp_path, train_node=given)
        e = Experiment(dataset="file", data_file=path, partition="natural", nodes=4, fraction=0.5, min_samples=1)
        population = build_population(e)
        held = {tuple(population.held_by(node)) for node in range(4)}
        assert held == {(1, 3, 5), (2,), (0, 4), tuple(range(6, 500))}
    with pytest.raises(InputError, match="nodes: 5 is not allowed; the data set has 4 owners with at least 1"):
        build_population(e.but(nodes=5))
    with pytest.raises(InputError, match="partition: 'natural' is not allowed; the samples of this data set have no"):
        build_population(e.but(data_file=str(written(tmp_path))))


def spoilt(value, at, x=X):
    changed = x.copy()
    changed[at] = value
    return changed


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"test_y": None}, "has no array test_y; it holds train_x, train_y, test_x"),
        ({"train_y": Y[:499]}, r"train_y has the shape \(499,\), and there are 500 samples; it must be \(500,\)"),
        ({"train_x": spoilt(np.nan, (7, 2))[:500]}, r"train_x holds 1 value that is not .*, the first at \[7, 2\]"),
        ({"test_x": spoilt(np.inf, 590)[500:]}, r"test_x holds 5 values that are not finite .* first at \[90, 0\]"),
        ({"train_x": spoilt(1e39, (1, 0))[:500]}, "train_x holds 1 value that is not finite as float32"),
        ({"test_y": spoilt(-1, 3, Y[500:])}, r"test_y holds the label -1 at \[3\]; labels are whole .* from 0 to 2"),
        ({"train_y": spoilt(10**9, 4, Y[:500])}, r"train_y holds the label 1000000000 at \[4\]"),
        ({"train_y": spoilt(0.5, 4, Y[:500] * 1.0)}, r"train_y holds 0.5 at \[4\]; labels are whole numbers"),
        ({"train_y": spoilt(np.nan, 4, Y[:500] * 1.0)}, r"train_y holds nan at \[4\]"),
        ({"train_y": Y[:500].astype(str)}, "train_y holds <U"),
        ({"test_x": X[500:, :4]}, r"test_x has samples of float32 \(4,\), and those of train_x are float32 \(5,\)"),
        ({"train_x": X[:500].astype(np.int64) + 9}, r"test_x has samples of float32 \(5,\), .* are int64 \(5,\)"),
        ({"train_x": X[:0], "train_y": Y[:0]}, "train_x is empty"),
        ({"train_x": X[:500, :0]}, r"train_x has the shape \(500, 0\)"),
        ({"train_x": X[:500, 0]}, r"train_x has the shape \(500,\)"),
        ({"train_x": X[:500].astype(np.uint8)}, r"train_x has the shape \(500, 5\); images must have"),
        ({"train_x": X[:500].astype(complex)}, "train_x holds complex128; it must hold float32, float64"),
        ({"train_x": np.full((500, 5), -3)}, r"train_x holds the token -3 at \[0, 0\]; 0 or above"),
        ({"train_x": X[:500].astype(object)}, "cannot be read .train_x: Object arrays cannot be loaded"),
        ({"train_node": np.zeros(3, int)}, r"train_node has the shape \(3,\); it must be \(500,\)"),
        ({"train_node": np.zeros(500)}, "train_node holds float64; owners are integers or names"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(tmp_path, changes, problem):
    path = written(tmp_path, **changes)
    with pytest.raises(InputError, match=problem) as refused:
        build_population(Experiment(dataset="file", data_file=path))
    assert str(refused.value).startswith(f"data_file: {path} ") and "\n" not in str(refused.value)


def test_what_is_no_npz_is_said_in_one_line(tmp_path, capsys):
    good = written(tmp_path).read_bytes()
    single, pickled = io.BytesIO(), io.BytesIO()
    np.save(single, X)
    with zipfile.ZipFile(pickled, "w") as archive:
        archive.writestr("train_x", b"cos\nsystem\n")
    for name, content in {"cut": good[:300], "none": b"", "text": b"a,b\n", "single": single.getvalue()}.items():
        (tmp_path / name).write_bytes(content)
        assert main(["run", "--dataset", "file", "--data-file", str(tmp_path / name), "--in-process"]) == 2
        assert f"data_file: {tmp_path / name} cannot be read (" in capsys.readouterr().err
    os.mkfifo(tmp_path / "fifo")
    assert main(["run", "--dataset", "file", "--data-file", str(tmp_path / "fifo")]) == 2
    assert "it is a FIFO, not a file" in capsys.readouterr().err
    assert main(["run", "--dataset", "file", "--data-file", str(tmp_path / "missing")]) == 2
    assert "missing cannot be read (No such file or directory)" in capsys.readouterr().err
    assert main(["run", "--dataset", "file"]) == 2
    assert "data_file: '' is not allowed; dataset file needs the path of an .npz file" in capsys.readouterr().err
    assert main(["run", "--dataset", "mnist", "--data-file", "my.npz"]) == 2
    assert "it is only used with dataset file, and dataset is mnist" in capsys.readouterr().err


def test_arrays_from_python(tmp_path):
    settings = save_data(
        tmp_path / "mine", (X[:500], Y[:500]), (X[500:].tolist(), Y[500:].tolist()), np.arange(500) % 7
    )
    assert settings == {"dataset": "file", "data_file": str(tmp_path / "mine")}
    e = Experiment(**settings, partition="natural", strategy="fedavg", nodes=7, rounds=1, model="mlr")
    assert build_population(e).sizes.tolist() == [72, 72, 72, 71, 71, 71, 71]
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]
    with pytest.raises(InputError, match="data: given cannot be used: test_y has the shape"):
        save_data(tmp_path / "other", (X[:500], Y[:500]), (X[500:], Y[400:]))
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


class Pictures(torch.utils.data.Dataset):
    """PIL images and ints, as torchvision's data sets return them."""

    def __init__(self, count, mode):
        self.count, self.mode = count, mode

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        from PIL import Image

        shape = (6, 4, 3) if self.mode == "RGB" else (6, 4)
        return Image.fromarray(np.full(shape, k, dtype=np.uint8)), k % 3


class Endless(IterableDataset):
    def __iter__(self):
        yield 0, 0


def test_torch_data_sets_from_python(tmp_path):
    both = TensorDataset(torch.tensor(X), torch.tensor(Y))
    halves = torch.utils.data.random_split(both, [500, 100], torch.Generator().manual_seed(1))
    e = Experiment(**save_data(tmp_path / "t.npz", *halves), **SMALL)
    samples = build_population(e).samples
    assert np.array_equal(samples.test_x, X[halves[1].indices].astype(np.float32)) and run(e).summary.rounds == 2
    for mode, shape in (("L", (1, 6, 4)), ("RGB", (3, 6, 4))):
        e = Experiment(**save_data(tmp_path / "p.npz", Pictures(200, mode), Pictures(9, mode)), **SMALL)
        samples = build_population(e).samples
        assert samples.shape == shape and samples.train_x.dtype == np.uint8 and samples.classes == 3
        assert (samples.train_x[17] == 17).all() and samples.test_y.tolist() == [0, 1, 2] * 3
    with pytest.raises(InputError, match="train: Endless cannot be read .* with a length"):
        save_data(tmp_path / "e.npz", Endless(), halves[1])
