"""The other families of official files, in miniature: right bytes however packed, wrong bytes refused."""

import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.io import savemat

from fedpns_ray import Experiment, InputError, run
from fedpns_ray.data.official import cifar, idx, svhn
from fedpns_ray.data.official.source import md5_of
from fedpns_ray.registry import PARTS, official_datasets
from fedpns_ray.terminal.command_line import main

RNG = np.random.default_rng(5)


def idx_file(array):
    """The idx format, by hand: type and number of axes, their lengths, the bytes."""
    magic = {1: 2049, 3: 2051}[array.ndim]
    return np.array([magic, *array.shape], dtype=">i4").tobytes() + array.astype(np.uint8).tobytes()


@pytest.fixture
def fashion(tmp_path, monkeypatch):
    """Four files with 6 and 2 images of every label, packed; their MD5 sums are official here."""
    small = idx.IdxSource("FashionMNIST", each=(6, 2))
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    arrays = []
    for count in (60, 20):
        arrays += [RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8), np.arange(count) % 10]
    packed = {f"{name}.gz": gzip.compress(idx_file(array)) for name, array in zip(idx.FILES, arrays, strict=True)}
    for name, data in packed.items():
        (raw / name).write_bytes(data)
    kind = SimpleNamespace(resources=[(name, md5_of(data)) for name, data in packed.items()])
    monkeypatch.setattr(idx, "torchvision_class", lambda name: kind)
    return SimpleNamespace(source=small, root=tmp_path, raw=raw, arrays=arrays)


def test_packed_files_vouch_for_unpacked_ones(fashion):
    official = fashion.source.read(fashion.root, download=False)
    assert official.verified.startswith("as published")
    assert np.array_equal(official.train_x[:, 0], fashion.arrays[0])
    assert np.array_equal(official.test_y, fashion.arrays[3]) and official.test_y.dtype == np.int64
    unpacked = fashion.raw / idx.FILES[0]
    unpacked.write_bytes(idx_file(fashion.arrays[0]))
    assert fashion.source.read(fashion.root, download=False).verified.startswith("as published")
    changed = fashion.arrays[0].copy()
    changed[0, 0, 0] ^= 1
    unpacked.write_bytes(idx_file(changed))
    with pytest.raises(InputError, match="train-images-idx3-ubyte differs from train-images-idx3-ubyte.gz"):
        fashion.source.read(fashion.root, download=False)


def test_unpacked_files_alone_are_accepted_by_their_form(fashion, caplog):
    """What the issue asks for: a valid unpacked Fashion-MNIST is used, and the user is told what was checked."""
    for name, array in zip(idx.FILES, fashion.arrays, strict=True):
        (fashion.raw / f"{name}.gz").unlink()
        (fashion.raw / name).write_bytes(idx_file(array))
    official = fashion.source.read(fashion.root, download=False)
    assert "6 and 2 images of a label" in official.verified and "cannot be verified" in caplog.text
    labels = fashion.arrays[1].copy()
    labels[0] = 1
    for data, problem in (
        (idx_file(labels), "does not have 6 images of each of 10 labels, as published"),
        (idx_file(labels + 200), "does not have a label for every image"),
        (idx_file(labels)[:-1], "does not hold labels"),
        (b"", "does not hold labels"),
    ):
        (fashion.raw / idx.FILES[1]).write_bytes(data)
        with pytest.raises(InputError, match=f"train-labels-idx1-ubyte {problem}"):
            fashion.source.read(fashion.root, download=False)
    (fashion.raw / idx.FILES[0]).write_bytes(idx_file(fashion.arrays[0])[:-5])
    with pytest.raises(InputError, match="does not hold the 60 images that it names"):
        fashion.source.read(fashion.root, download=False)
    (fashion.raw / idx.FILES[0]).unlink()
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte is missing"):
        fashion.source.read(fashion.root, download=False)


def test_emnist_from_its_archive_and_unpacked(tmp_path, monkeypatch):
    small = idx.IdxSource("EMNIST", each=(2, 1), classes=47, files=idx.EMNIST.files, split="balanced")
    assert idx.EMNIST.files[2] == "emnist-balanced-test-images-idx3-ubyte"
    raw, whole, files = tmp_path / "EMNIST" / "raw", io.BytesIO(), {}
    raw.mkdir(parents=True)
    for name, count in zip(idx.EMNIST.files, (94, 94, 47, 47), strict=True):
        array = np.arange(count) % 47 if "labels" in name else RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        files[name] = idx_file(array)
    with zipfile.ZipFile(whole, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"gzip/{name}.gz", gzip.compress(data))
    (raw / "gzip.zip").write_bytes(whole.getvalue())
    monkeypatch.setattr(idx, "torchvision_class", lambda name: SimpleNamespace(md5=md5_of(whole.getvalue())))
    first = small.read(tmp_path, download=False)
    assert first.verified.startswith("as published") and first.train_x.shape == (94, 1, 28, 28)
    (raw / "gzip.zip").unlink()
    (raw / "gzip").mkdir()
    for name, data in files.items():
        (raw / "gzip" / f"{name}.gz").write_bytes(gzip.compress(data, 1))
    again = small.read(tmp_path, download=False)
    assert np.array_equal(again.test_x, first.test_x) and "2 and 1 images" in again.verified


def test_cifar100_from_an_archive_that_was_packed_again(tmp_path, monkeypatch):
    from fedpns_ray.data.torchvision_import import torchvision_datasets

    pixels = RNG.integers(0, 256, (20, 3072), dtype=np.uint8)
    batches = {
        "train": pickle.dumps({"data": pixels[:15], "fine_labels": list(range(15))}),
        "test": pickle.dumps({"data": pixels[15:], "fine_labels": [99] * 5}),
        "meta": pickle.dumps({"fine_label_names": ["apple"] * 100}),
    }

    class Small(torchvision_datasets().CIFAR100):
        train_list = [["train", md5_of(batches["train"])]]  # noqa: RUF012
        test_list = [["test", md5_of(batches["test"])]]  # noqa: RUF012
        meta = {"filename": "meta", "key": "fine_label_names", "md5": md5_of(batches["meta"])}  # noqa: RUF012

    monkeypatch.setattr(cifar, "torchvision_class", lambda name: Small)
    archive = tmp_path / "cifar-100-python.tar.xz"

    def pack(files):
        with tarfile.open(archive, "w:xz") as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(f"cifar-100-python/{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

    pack(batches | {"test": batches["test"] + b"."})
    with pytest.raises(InputError, match="tar.xz holds a test that does not have its official checksum"):
        cifar.CIFAR100.read(tmp_path, download=False)
    assert not (tmp_path / "cifar-100-python").exists()
    pack(batches)
    assert cifar.CIFAR100.there(tmp_path)
    official = cifar.CIFAR100.read(tmp_path, download=False)
    assert np.array_equal(official.train_x, pixels[:15].reshape(-1, 3, 32, 32))
    assert official.train_y.tolist() == list(range(15)) and official.test_y.tolist() == [99] * 5
    monkeypatch.setenv("FEDPNS_DATA", str(tmp_path))
    small = {"nodes": 3, "fraction": 0.4, "samples_per_node": 4, "partition": "iid", "batch_size": 2, "rounds": 2}
    e = Experiment(dataset="cifar100", **small)
    assert e.model == "resnet18-gn" and len(run(e, progress=False).records) == 2
    (tmp_path / "cifar-100-python" / "train").write_bytes(b"other")
    with pytest.raises(InputError, match="cifar-100-python/train does not have its official checksum"):
        cifar.CIFAR100.read(tmp_path, download=False)


def test_svhn(tmp_path, monkeypatch):
    split_list = {}
    for split, count in (("train", 6), ("test", 4)):
        matrix, pixels = io.BytesIO(), RNG.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        savemat(matrix, {"X": pixels, "y": np.array([[10], [1], [2], [9], [10], [3]][:count], dtype=np.uint8)})
        split_list[split] = ["", f"{split}_32x32.mat", md5_of(matrix.getvalue())]
        (tmp_path / f"{split}_32x32.mat.xz").write_bytes(lzma.compress(matrix.getvalue()))
    monkeypatch.setattr(svhn, "torchvision_class", lambda name: SimpleNamespace(split_list=split_list))
    official = svhn.SVHN.read(tmp_path, download=False)
    assert official.train_y.tolist() == [0, 1, 2, 9, 0, 3] and official.test_x.shape == (4, 3, 32, 32)
    assert np.array_equal(official.test_x[3, 2], pixels[:, :, 2, 3])
    (tmp_path / "test_32x32.mat").write_bytes(b"MATLAB")
    with pytest.raises(InputError, match="test_32x32.mat does not have its official checksum"):
        svhn.SVHN.read(tmp_path, download=False)


def test_checksums_are_torchvisions():
    """Every class and attribute that is relied on is there in the torchvision that is installed."""
    from fedpns_ray.data.torchvision_import import torchvision_datasets as there

    for name in ("FashionMNIST", "KMNIST"):
        assert [file for file, _ in getattr(there(), name).resources] == [f"{file}.gz" for file in idx.FILES]
    assert len(there().EMNIST.md5) == 32 and set(svhn.FILES) < set(there().SVHN.split_list)
    for source in (cifar.CIFAR10, cifar.CIFAR100):
        kind = getattr(there(), source.kind)
        assert (kind.base_folder, kind.filename) == (source.folder, f"{source.stem}.tar.gz")


def test_the_list_the_doctor_and_verify_see_what_is_there(tmp_path, monkeypatch, capsys, mnist_files):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for path in mnist_files.glob("*.gz"):
        (raw / path.name).symlink_to(path)
    monkeypatch.setenv("FEDPNS_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["data"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    for word in (*PARTS["dataset"], *PARTS["partition"], "built in", "data_file = ", "not prepared yet", "not here"):
        assert word in listed
    assert main(["doctor"]) == 0
    assert "mnist (official files, not prepared yet)" in " ".join(capsys.readouterr().out.split())
    assert main(["data", "verify"]) == 0
    assert capsys.readouterr().out.startswith("mnist: as published")
    assert main(["data", "verify", "kmnist"]) == 2 and main(["data", "fetch", "synthetic"]) == 2
    assert "kmnist is not in" in (said := capsys.readouterr().err) and "'synthetic' is unknown" in said


def test_outlines_and_sources_agree():
    from fedpns_ray.data.sources import SOURCES

    for name in SOURCES:
        outline = official_datasets()[name].outline()
        assert outline is None or outline.classes == SOURCES[name].classes
    assert Experiment(dataset="emnist").model == "mlr" and Experiment(dataset="svhn").model == "cnn-c"


def test_a_download_from_a_server_that_does_not_answer_has_a_limit(tmp_path):
    import socket

    from fedpns_ray.data.official.source import ANSWERED_WITHIN, download

    limits = []
    download(lambda root, **options: limits.append(socket.create_server(("127.0.0.1", 0)).gettimeout()), tmp_path)
    assert limits == [ANSWERED_WITHIN] and socket.getdefaulttimeout() is None
